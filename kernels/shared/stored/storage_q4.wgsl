// Cached rows of 4-bit codes with f16 scales: a unit is four words, 32 components.
const BITS = 4u;
#include "storage_quads.wgsl"
