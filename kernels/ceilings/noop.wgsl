// Does next to nothing: what one more dispatch costs. Bindings: 0 params, 1 target. Run: lla-sim calibrate (overheads).
struct Params { value: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> target_words: array<u32>;

@compute @workgroup_size(1)
fn main() { target_words[0] = params.value; }
