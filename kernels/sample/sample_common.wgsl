// Shared by the choices of a token. Logits are read as bits: WGSL lets a compiler assume that no float is NaN, but not
// of bits.
override WG: u32;

const NONE = 0xffffffffu;   // no token: a logit was NaN

fn is_nan(bits: u32) -> bool { return (bits & 0x7fffffffu) > 0x7f800000u; }
