// Shared by the kernels that materialise K or V: their bindings, which slots hold a token, and how a slot's f16 row is
// written. The including file has the storage of the latents and rotary.wgsl.
struct Params {
  pinned: u32,             // slots of a row before its ring
  ring: u32,               // slots of the ring
  once: u32,               // 1, see attend_rows.wgsl
  row_shared: u32,         // 1: all KV heads of a sequence read the same latent
  rank: u32,
  pairs: u32,              // half the head width
  adjacent: u32,           // 1: pairs are neighbours
  rotate: u32,             // 1: pairs are rotated by their positions
  positions_by_head: u32,
  spare0: u32,
  spare1: u32,
  spare2: u32,
  keys: CachedRow,
}
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> keys: array<vec4u>;
@group(0) @binding(2) var<storage, read> weights: array<u32>;
@group(0) @binding(3) var<storage, read> means: array<f32>;
@group(0) @binding(4) var<storage, read> spans: array<vec4u>;
@group(0) @binding(5) var<storage, read> positions: array<u32>;
@group(0) @binding(6) var<storage, read> turns: array<vec2f>;
@group(0) @binding(7) var<storage, read_write> rows: array<u32>;

// Position of the token in a slot, and whether there is one.
struct Cached { position: u32, here: bool }

fn cached(span: vec4u, position_row: u32, slot: u32) -> Cached {
  if (slot < params.pinned) {
    let here = slot < span.x;
    return Cached(positions[select(0u, position_row * (params.pinned + params.ring) + slot, here)], here);
  }
  // Ring token i has position y + i and lies in slot pinned + (y + i) mod ring.
  let ring = max(params.ring, 1u);
  let i = (slot - params.pinned + ring - span.y % ring) % ring;
  return Cached(span.y + i, slot < params.pinned + params.ring && i < span.z);
}

// Whether slots [first, first + count) may hold a token.
fn in_use(span: vec4u, first: u32, count: u32) -> bool {
  let begin = params.pinned + span.y % max(params.ring, 1u);
  let wraps = begin + span.z > params.pinned + params.ring;
  return first < span.x || wraps || (span.z > 0u && first < begin + span.z && first + count > begin);
}

// Word w of a slot's f16 row: see cache_layout.wgsl. Rows of even width have no tails.
fn store_word(row: u32, slot: u32, w: u32, value: vec2f) {
  let words = params.pairs;
  let whole = words / 4u * 4u;
  let t = slot % TILE_TOKENS;
  let tile = (row * ((params.pinned + params.ring) / TILE_TOKENS) + slot / TILE_TOKENS) * TILE_TOKENS * words;
  rows[tile + select(TILE_TOKENS * w + t, t * whole + w, w < whole)] = pack2x16float(value);
}

// Stores pairs m (even) and m + 1 of a slot's row; what lies beyond the head is left out.
fn store_pairs(row: u32, slot: u32, m: u32, a: vec2f, b: vec2f) {
  if (params.adjacent == 1u) {
    if (m < params.pairs) { store_word(row, slot, m, a); }
    if (m + 1u < params.pairs) { store_word(row, slot, m + 1u, b); }
  } else if (m < params.pairs) {
    // Half the head width is even here.
    store_word(row, slot, m / 2u, vec2f(a.x, b.x));
    store_word(row, slot, (m + params.pairs) / 2u, vec2f(a.y, b.y));
  }
}
