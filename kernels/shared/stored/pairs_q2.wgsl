// Pairs of components of 2-bit codes.
#include "pairs_quads.wgsl"
