// Shared by the split-KV decode kernels (attend, attend_rebuild, attend_block_absorbed): which tokens a split has, the
// online softmax, and the sum over value rows, which stays in registers.
//
//   m' = max(m, s_t)    l' = l 2^(m - m') + 2^(s_t - m')    o' = o 2^(m - m') + 2^(s_t - m') v_t
//
// A workgroup is one (split, LANES query heads of a KV head, sequence). A sequence's cache is a run of pinned slots and
// a ring (`spans`: tokens pinned, position of the ring's first token, tokens in the ring); the first splits take the
// pinned ones. WIDE threads of a subgroup share a cached row; each such row group has a running m, l and o of its own,
// and the groups are merged once, in finish_rows: there is no barrier before it. (Software drivers run a loop with a
// barrier at half speed.) The groups of STREAM threads read neighbouring rows, so that a subgroup reads one run of
// memory. A kernel calls place_of, start_rows, for every token fold_row, and finish_rows. Partials, [sequence][query
// head][split][value width + 2] f32: o (not yet divided by l), m (base 2), l. How a row is stored comes before.

override WG: u32;           // threads of a workgroup, a multiple of STREAM
override LANES: u32;        // query heads of a workgroup, at most 4
override WIDE: u32;         // threads that share a row, a power of two; divides STREAM
// threads that walk neighbouring rows; at most a subgroup where a kernel's scores cross row groups
override STREAM: u32;
// units of a value row that a thread takes, LANES * VALUE_EACH * UNIT_VECS at most MOST_SUMS
override VALUE_EACH: u32;
override SCRATCH: u32;      // floats of workgroup memory: WG * UNIT
override SCORES: u32;       // 1: every score is also written to `scores`

// Shapes are uniforms where no array depends on them, so that one pipeline serves all contexts, ranks and groups.
struct Params {
  pinned: u32,         // slots of a row before its ring
  ring: u32,           // slots of the ring
  split_tokens: u32,   // tokens of a split
  pinned_splits: u32,  // splits that take pinned tokens
  first_split: u32,    // where this call's splits start among all of a query
  splits: u32,         // of a query, other calls' included
  scale: f32,          // of a score, times log2(e)
  // For software drivers alone: 1; as a factor of a loop's bound it keeps their compilers from unrolling, which takes
  // seconds.
  once: u32,
  row_shared: u32,     // 1: all KV heads of a sequence read the same cached row (LLA-2D, mla-head)
  group: u32,          // query heads that read the same cached row
  lane_groups: u32,    // workgroups that share a KV head: ceil(group / LANES)
  value_width: u32,
  branch_shared: u32,  // 1: all KV heads of a sequence read the same branch row
  blocks: u32,         // attend_block_absorbed: blocks of a sequence in the basis
  query_sets: u32,     // distance of the second set of queries, which pinned tokens meet; 0 without
  key_width: u32,
  branch_width: u32,
  head_pairs: u32,     // attend_rebuild: half the head width
  adjacent_pairs: u32,      // attend_rebuild: 1: pairs are neighbours
  positions_by_head: u32,   // attend_rebuild: 1: each KV head has positions of its own for pinned tokens
  keys: CachedRow,
  values: CachedRow,
  branch: CachedRow,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> keys: array<vec4u>;
@group(0) @binding(3) var<storage, read> values: array<vec4u>;
@group(0) @binding(4) var<storage, read_write> partials: array<f32>;
@group(0) @binding(5) var<storage, read> spans: array<vec4u>;
@group(0) @binding(6) var<storage, read_write> scores: array<f32>;   // [sequence][query head][slot]

const MOST_LANES = 4u;
const MOST_SUMS = 192u;   // more than a few are for rows that no sensible codec has
const LOWEST = -3.0e38;   // stands for minus infinity, which WGSL may assume away

var<workgroup> scratch: array<f32, SCRATCH>;
var<workgroup> masses: array<vec2f, WG>;         // running maximum and sum of each row group
var<private> top: vec4f;                         // running maximum of each lane, of this thread's row group
var<private> mass: vec4f;                        // running sum of each lane, of this thread's row group
var<private> sums: array<vec4f, MOST_SUMS>;      // [lane][unit][vec]

// Uniform over the workgroup.
struct Place {
  sequence: u32,
  kv_row: u32,       // sequence * KV heads + head
  row: u32,          // cached row: kv_row, or the sequence if its heads share a row
  first_head: u32,   // first query head of this workgroup, over all sequences
  lanes: u32,        // query heads of this workgroup
  split: u32,        // among all of a query
  pinned: bool,
  begin: u32,        // tokens [begin, end) of the run
  end: u32,
  phase: u32,        // ring slot of the run's token 0
  position: u32,     // of the ring's token 0
}

fn place_of(id: vec3u, groups: vec3u) -> Place {
  let span = spans[id.z];
  let head = id.y / params.lane_groups;
  let head0 = (id.y % params.lane_groups) * LANES;
  let kv_row = id.z * (groups.y / params.lane_groups) + head;
  let pinned = id.x < params.pinned_splits;
  let part = select(id.x - params.pinned_splits, id.x, pinned);
  let tokens = select(span.z, span.x, pinned);
  let begin = min(part * params.split_tokens, tokens);
  return Place(id.z, kv_row, select(kv_row, id.z, params.row_shared == 1u), kv_row * params.group + head0,
      min(LANES, params.group - head0),
    params.first_split + id.x, pinned, begin, min(begin + params.split_tokens, tokens), span.y % max(params.ring, 1u),
        span.y);
}

// Threads without a unit of their own repeat the last one; their results are not used.
fn unit_of(shape: CachedRow, unit: u32) -> u32 { return select(unit, min(unit, shape.units - 1u), EDGES == 1u); }

fn tiles_of_row() -> u32 { return (params.pinned + params.ring) / TILE_TOKENS; }

// Slot of token i of the run.
fn slot_of(place: Place, i: u32) -> u32 {
  let turned = place.phase + i;
  return select(params.pinned + turned - select(0u, params.ring, turned >= params.ring), i, place.pinned);
}

// The tokens of this thread's stream, in whole steps of `unit` tokens: [x, y) of the run. Streams share out the split.
fn stream_tokens(l: u32, place: Place, unit: u32) -> vec2u {
  let streams = WG / STREAM;
  let each = (place.end - place.begin + streams * unit - 1u) / (streams * unit) * unit;
  let start = min(place.begin + (l / STREAM) * each, place.end);
  return vec2u(start, min(start + each, place.end));
}

fn start_rows() {
  top = vec4f(LOWEST);
  mass = vec4f(0.0);
  for (var k = 0u; k < LANES * VALUE_EACH * UNIT_VECS; k++) { sums[k] = vec4f(0.0); }
}

// Folds token i of the run, of scores `s` (scaled, base-2 logarithm), the same in all threads of a row group. A token
// past the end has the score LOWEST and any i within the run; it adds nothing.
fn fold_row(l: u32, place: Place, i: u32, s: vec4f) {
  let peak = max(top, s);
  let fade = exp2(max(top - peak, vec4f(-200.0)));
  // No bound on s - peak: it would turn a NaN into a weight of 0.
  let p = select(exp2(s - peak), vec4f(0.0), s <= vec4f(LOWEST));
  top = peak;
  mass = fma(mass, fade, p);
  let c = l % WIDE;
  let slot = slot_of(place, i);
  let token = token_at(params.values, place.row, tiles_of_row(), slot);
  for (var k = 0u; k < VALUE_EACH; k++) {
    let v = load_unit(&values, params.values, token, unit_of(params.values, c + WIDE * k));
    for (var lane = 0u; lane < LANES; lane++) {
      for (var e = 0u; e < UNIT_VECS; e++) {
        let at = (lane * VALUE_EACH + k) * UNIT_VECS + e;
        sums[at] = fma(vec4f(p[lane]), v[e], sums[at] * fade[lane]);
      }
    }
  }
  if (SCORES == 1u && c == 0u) {
    for (var lane = 0u; lane < place.lanes; lane++) {
      if (s[lane] > LOWEST) { scores[(place.first_head + lane) * (params.pinned + params.ring) + slot] = s[lane]; }
    }
  }
}

// Merges the row groups and writes the partials.
fn finish_rows(l: u32, place: Place) {
  let stride = params.value_width + 2u;
  for (var lane = 0u; lane < LANES; lane++) {
    let out = ((place.first_head + lane) * params.splits + place.split) * stride;
    masses[l] = vec2f(top[lane], mass[lane]);
    workgroupBarrier();
    var peak = LOWEST;
    for (var r = 0u; r < WG * params.once; r += WIDE) { peak = max(peak, masses[r].x); }
    let fade = exp2(max(top[lane] - peak, -200.0));
    if (l == 0u && lane < place.lanes) {
      var sum = 0.0;
      for (var r = 0u; r < WG * params.once; r += WIDE) { sum += masses[r].y * exp2(max(masses[r].x - peak, -200.0)); }
      partials[out + params.value_width] = peak;
      partials[out + params.value_width + 1u] = sum;
    }
    for (var k = 0u; k < VALUE_EACH; k++) {
      for (var e = 0u; e < UNIT_VECS; e++) {
        let sum = sums[(lane * VALUE_EACH + k) * UNIT_VECS + e] * fade;
        for (var x = 0u; x < 4u; x++) { scratch[(4u * e + x) * WG + l] = sum[x]; }
      }
      workgroupBarrier();
      // Components of the units c + WIDE k of all c.
      for (var i = l; i < WIDE * UNIT * params.once; i += WG) {
        let component = ((i / UNIT) + WIDE * k) * UNIT + i % UNIT;
        if (lane < place.lanes && component < params.value_width) {
          var sum = 0.0;
          for (var r = 0u; r < WG * params.once; r += WIDE) { sum += scratch[(i % UNIT) * WG + i / UNIT + r]; }
          partials[out + component] = sum;
        }
      }
      workgroupBarrier();
    }
  }
}
