// Pairs of components of 4-bit codes.
#include "pairs_quads.wgsl"
