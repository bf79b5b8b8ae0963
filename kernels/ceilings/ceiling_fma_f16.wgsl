// Multiply-adds on registers in f16: 8 independent vec4 chains a thread, 64 flops a round. The rate at which any kernel
// can compute in f16 without matrix units. Bindings: 0 params, 1 sums. Run: lla-sim calibrate (ceilings), where the
// adapter has shader-f16.
enable f16;

const WG = 256u;

struct Params { rounds: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u) {
  // The factor is below 1 by more than f16 resolves, so the chains converge and never overflow.
  let x = vec4h(0.99h - f16(id.x & 7u) * 0.01h);
  let y = vec4h(0.01h);
  var a = x; var b = x + y; var c = x - y; var d = x + 2.0h * y;
  var e = x * 0.5h; var f = b * 0.5h; var g = c * 0.5h; var h = d * 0.5h;
  for (var i = 0u; i < params.rounds; i++) {
    a = fma(a, x, y); b = fma(b, x, y); c = fma(c, x, y); d = fma(d, x, y);
    e = fma(e, x, y); f = fma(f, x, y); g = fma(g, x, y); h = fma(h, x, y);
  }
  let s = vec4f(a + b + c + d) + vec4f(e + f + g + h);
  sums[id.x] = s.x + s.y + s.z + s.w;
}
