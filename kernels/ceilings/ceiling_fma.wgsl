// Multiply-adds on registers: 8 independent vec4 chains a thread, 64 flops a round. The rate at which any kernel can
// compute in f32.
// Bindings: 0 params, 1 sums. Run: lla-sim calibrate (ceilings).
const WG = 256u;

struct Params { rounds: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> sums: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u) {
  let x = vec4f(0.999 + f32(id.x) * 1e-9);
  let y = vec4f(1e-3);
  var a = x; var b = x + y; var c = x - y; var d = x + 2.0 * y;
  var e = x * 0.5; var f = b * 0.5; var g = c * 0.5; var h = d * 0.5;
  for (var i = 0u; i < params.rounds; i++) {
    a = fma(a, x, y); b = fma(b, x, y); c = fma(c, x, y); d = fma(d, x, y);
    e = fma(e, x, y); f = fma(f, x, y); g = fma(g, x, y); h = fma(h, x, y);
  }
  let s = a + b + c + d + e + f + g + h;
  sums[id.x] = s.x + s.y + s.z + s.w;
}
