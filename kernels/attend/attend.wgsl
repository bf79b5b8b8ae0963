// Split-KV decode attention of one new token over cached rows that are used as they are stored: full K and V, or
// latents with an absorbed query.
//
//   s_t = scale (q . k_t + q_b . b_t)
//   q: the first key components of a query, q_b: the rest; b: the rotary branch
//
// attendRow of reference.ts is the same without threads: read it first. Then attend_stored.wgsl, then attend_rows.wgsl.
// WIDE threads share a key row; each holds its part of the queries in registers.
// Bindings: 0 params, 1 queries [set][sequence][query head][key width + branch width] f32, 2 keys, 3 values, 4
// partials, 5 spans, 6 scores (any writable buffer where none are asked for), 7 branch (rows of their own, or one a
// sequence with branch_shared; any buffer where there is no branch).
// Run: lla-sim bench --kernel attend
enable subgroups;
#storage
#include "attend_rows.wgsl"
#include "attend_stored.wgsl"
