// Split-KV decode attention of one new token over rows of residual-quant, rebuilt in registers: those of the loop that
// the rows' offsets name. attend.wgsl says the rest; residual.layout.ts has the layout.
// Bindings: 0 params, 1 queries [sequence][query head][head width] f32, 2 keys, 3 values, 4 partials, 5 spans, 6
// scores and 7 branch (not used). Run: lla-sim bench --kernel attend_residual
enable subgroups;
#include "storage_residual.wgsl"
#include "attend_rows.wgsl"
#include "attend_stored.wgsl"
