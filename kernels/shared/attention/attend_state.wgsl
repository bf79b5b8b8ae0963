// Parameters, bindings and sums of the split-KV decode kernels: attend_rows.wgsl.
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
