// Stored pairs of f16 in a u32 (needs no shader-f16). Arithmetic is f32.
alias Pair = u32;
fn load_pair(stored: Pair) -> vec2f { return unpack2x16float(stored); }
fn store_pair(value: vec2f) -> Pair { return pack2x16float(value); }
