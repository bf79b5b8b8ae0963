// Cached rows of 2-bit codes with f16 scales: a unit is four words, 64 components.
const BITS = 2u;
#include "storage_quads.wgsl"
