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
#include "attend_state.wgsl"
#include "attend_split.wgsl"
#include "attend_fold.wgsl"
