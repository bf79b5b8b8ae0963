// Stored pairs of f32.
alias Pair = vec2f;
fn load_pair(stored: Pair) -> vec2f { return stored; }
fn store_pair(value: vec2f) -> Pair { return value; }
