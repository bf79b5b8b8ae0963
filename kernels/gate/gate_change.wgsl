// target = before + a * target, a = exp(-softplus(gate + bias) * exp(log rate)), element by element: how much of a
// loop's change of its state is kept (LoopUS).
// Bindings: 0 params, 1 gates [row][width], 2 biases and logarithms of rates [2][width], 3 before [row][width], 4
// target [row][width] (a change, in place), f32. Rows begin at an offset. Run: lla-sim bench --kernel gate --variant
// change
const WG = 256u;

struct Params {
  count: u32,           // rows * width
  width: u32,
  first: u32,           // float of row 0, in all three
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> gates: array<f32>;
@group(0) @binding(2) var<storage, read> rates: array<f32>;
@group(0) @binding(3) var<storage, read> before: array<f32>;
@group(0) @binding(4) var<storage, read_write> destination: array<f32>;

// log(1 + e^x), to the last digits where it is small.
fn softplus(x: f32) -> f32 {
  let e = exp(-abs(x));
  return max(x, 0.0) + select(log(1.0 + e), e * (1.0 - e * (0.5 - e / 3.0)), e < 0.01);
}

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u, @builtin(num_workgroups) groups: vec3u) {
  for (var i = id.x; i < params.count; i += groups.x * WG) {
    let column = i % params.width;
    let at = params.first + i;
    let kept = exp(-softplus(gates[at] + rates[column]) * exp(rates[params.width + column]));
    destination[at] = before[at] + kept * destination[at];
  }
}
