// H2O, during the prefill of a whole prompt: adds the attention weights that the queries of a chunk give to the tokens
// before them to the mass of these, pooled over the query heads of all KV heads of a row that evicts on its own:
//
//   mass[row][t] += sum over its heads and the queries i with n + i > t of 2^(s_it - a_i) / m_i
//   n: tokens before the chunk
//
// a and m are the statistics of attention over all that a query sees (attend_carried.wgsl). A token's attention to
// itself does not count, as in decoding. It is attend_prefill.wgsl with the roles exchanged: WIDE threads share LANES
// keys, hold their parts in registers and loop over the queries, so that a mass is written by one thread, without
// barriers or atomics. Bindings: 0 params, 1 queries f32, 2 keys in the layout of caches, 3 statistics [token, through
// all sequences][query head] (a in base 2, m), 4 mass [sequence][row][token], 5 queries of the rotary branch f32 and 6
// its keys [sequence][token][head, or one for all][component] f32 (any buffers where there is no branch), 7 queries
// again. Run: lla-sim bench --kernel mass_prefill
enable subgroups;
#storage

override WG: u32;           // threads of a workgroup
override WIDE: u32;         // threads that share a row: a power of two, at most a subgroup
override KEY_EACH: u32;     // units of a key row that a thread takes, LANES * KEY_EACH * UNIT_VECS at most MOST_VECS
override BRANCH_EACH: u32;  // components of a branch row that a thread takes, 0 without a branch
override VECTORS: u32;      // 1: queries lie and are wide in whole vectors of four, which are read at once

const LANES = 4u;
const MOST_VECS = 192u;
const MOST_BRANCH = 64u;

struct Params {
  keys: CachedRow,
  tiles: u32,           // of a cached row
  first_row: u32,       // cached row of the first sequence's first head
  kv_heads: u32,
  group: u32,
  pooled: u32,          // KV heads of an evicting row
  queries: u32,         // tokens of the chunk
  context: u32,         // tokens before it
  key_width: u32,
  scale: f32,           // of a score, times log2(e)
  query_offset: u32,    // float of token 0, head 0; heads follow each other
  query_row: u32,       // floats from a token to the next, through all sequences
  branch_width: u32,
  branch_heads: u32,    // 1: all KV heads share a branch key
  branch_offset: u32,   // of the branch's queries
  branch_row: u32,
  branch_head: u32,     // floats from a query head to the next
  branch_tokens: u32,   // branch keys of a sequence
  mass_row: u32,        // floats of a row's masses
  begins: u32,          // 1: tokens of the chunk have no mass yet
  once: u32,            // 1; keeps compilers from unrolling
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> queries: array<f32>;
@group(0) @binding(2) var<storage, read> keys: array<vec4u>;
@group(0) @binding(3) var<storage, read> statistics: array<vec2f>;
@group(0) @binding(4) var<storage, read_write> mass: array<f32>;
@group(0) @binding(5) var<storage, read> branch_queries: array<f32>;
@group(0) @binding(6) var<storage, read> branch_keys: array<f32>;
@group(0) @binding(7) var<storage, read> query_vectors: array<vec4f>;   // the queries once more

var<private> held: array<vec4f, MOST_VECS>;       // [lane][unit][vec]
var<private> branch: array<vec4f, MOST_BRANCH>;   // [component], a lane each

// Threads without a unit of their own repeat the last one, with a query part of zero.
fn unit_of(unit: u32) -> u32 { return min(unit, params.keys.units - 1u); }

fn load_keys(sequence: u32, kv_head: u32, tokens: vec4u, c: u32) {
  let row = params.first_row + sequence * params.kv_heads + kv_head;
  let branch_head = select(kv_head, 0u, params.branch_heads == 1u);
  for (var lane = 0u; lane < LANES; lane++) {
    let token = token_at(params.keys, row, params.tiles, tokens[lane]);
    for (var k = 0u; k < KEY_EACH; k++) {
      let x = load_unit(&keys, params.keys, token, unit_of(c + WIDE * k));
      for (var e = 0u; e < UNIT_VECS; e++) { held[(lane * KEY_EACH + k) * UNIT_VECS + e] = x[e]; }
    }
    let branch_at = ((sequence * params.branch_tokens + tokens[lane]) * params.branch_heads + branch_head) *
        params.branch_width;
    for (var k = 0u; k < BRANCH_EACH; k++) {
      branch[k][lane] = branch_keys[branch_at + min(c + WIDE * k, params.branch_width - 1u)];
    }
  }
}

// Scores of a query against the keys, in all threads that share these.
fn score(token: u32, head: u32, c: u32) -> vec4f {
  let at = params.query_offset + token * params.query_row + head * params.key_width;
  var dots: array<vec4f, LANES>;
  for (var lane = 0u; lane < LANES; lane++) { dots[lane] = vec4f(0.0); }
  for (var k = 0u; k < KEY_EACH; k++) {
    for (var e = 0u; e < UNIT_VECS; e++) {
      let first = (c + WIDE * k) * UNIT + 4u * e;
      var q = vec4f(0.0);
      if (VECTORS == 1u) {
        if (first < params.key_width) { q = query_vectors[(at + first) / 4u]; }
      } else {
        for (var x = 0u; x < 4u * params.once; x++) {
          if (first + x < params.key_width) { q[x] = queries[at + first + x]; }
        }
      }
      for (var lane = 0u; lane < LANES; lane++) {
        dots[lane] = fma(held[(lane * KEY_EACH + k) * UNIT_VECS + e], q, dots[lane]);
      }
    }
  }
  var s: vec4f;
  for (var lane = 0u; lane < LANES; lane++) { s[lane] = dot(dots[lane], vec4f(1.0)); }
  let branch_at = params.branch_offset + token * params.branch_row + head * params.branch_head;
  for (var k = 0u; k < BRANCH_EACH; k++) {
    let component = c + WIDE * k;
    if (component < params.branch_width) { s = fma(branch[k], vec4f(branch_queries[branch_at + component]), s); }
  }
  for (var step = 1u; step < WIDE; step *= 2u) { s += subgroupShuffleXor(s, step); }
  return s * params.scale;
}

// Workgroups: (LANES WG / WIDE tokens, evicting row, sequence).
@compute @workgroup_size(WG)
fn main(
  @builtin(workgroup_id) id: vec3u,
  @builtin(num_workgroups) groups: vec3u,
  @builtin(local_invocation_index) l: u32
) {
  let tokens = params.context + params.queries;
  let first = id.x * LANES * (WG / WIDE);
  if (first >= tokens) { return; }
  let c = l % WIDE;
  let own = vec4u(first + (l / WIDE) * LANES) + vec4u(0u, 1u, 2u, 3u);
  // All threads of a subgroup take part in the shuffles: they begin with the first query that any key of the workgroup
  // has a weight from.
  let begin = max(first + 1u, params.context) - params.context;
  let heads = params.kv_heads * params.group;
  var sum = vec4f(0.0);
  for (var pooled = 0u; pooled < params.pooled; pooled++) {
    let kv_head = id.y * params.pooled + pooled;
    load_keys(id.z, kv_head, min(own, vec4u(tokens - 1u)), c);
    for (var i = begin; i < params.queries; i++) {
      let token = id.z * params.queries + i;
      for (var g = 0u; g < params.group; g++) {
        let head = kv_head * params.group + g;
        let s = score(token, head, c);
        let carried = statistics[token * heads + head];
        sum += select(vec4f(0.0), exp2(s - carried.x) / carried.y, vec4u(params.context + i) > own);
      }
    }
  }
  if (c != 0u) { return; }
  for (var lane = 0u; lane < LANES; lane++) {
    if (own[lane] >= tokens) { break; }
    let at = (id.z * groups.y + id.y) * params.mass_row + own[lane];
    mass[at] = sum[lane] + select(mass[at], 0.0, params.begins == 1u && own[lane] >= params.context);
  }
}
