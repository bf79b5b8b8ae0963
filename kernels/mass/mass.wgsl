// H2O: adds this step's attention to the mass of every cached slot, pooled over the query heads of a row that evicts on
// its own:
//
//   mass[row][slot] += sum over its query heads of 2^(s - m) / l
//
// The softmax is that of all tokens of the step, so m and l are those after the current token was folded in.
// Bindings: 0 params, 1 scores [query head of all sequences][slot] (base-2, LOWEST where no token is), 2 stats [query
// head] (m, l), 3 mass [row][slot] f32. Run: lla-sim bench --kernel mass
const WG = 128u;

struct Params { slots: u32, group: u32 }   // group: query heads of a row, one after the other
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> scores: array<f32>;
@group(0) @binding(2) var<storage, read> stats: array<vec2f>;
@group(0) @binding(3) var<storage, read_write> mass: array<f32>;

@compute @workgroup_size(WG)
fn main(@builtin(global_invocation_id) id: vec3u) {
  if (id.x >= params.slots) { return; }
  var sum = 0.0;
  for (var i = 0u; i < params.group; i++) {
    let head = id.y * params.group + i;
    // Far below the maximum 2^x is 0, and LOWEST less a maximum must not overflow.
    sum += exp2(max(scores[head * params.slots + id.x] - stats[head].x, -200.0)) / stats[head].y;
  }
  mass[id.y * params.slots + id.x] += sum;
}
