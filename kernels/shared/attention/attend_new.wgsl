// The current token of each sequence, whose exact key and value are folded in after the cached tokens: where its
// vectors lie.
const LOWEST = -3.0e38;      // maximum of no scores; stands for minus infinity, which WGSL may assume away

struct Current {
  heads: u32,          // query heads of a sequence
  group: u32,          // query heads that share a KV head
  key_width: u32,
  value_width: u32,
  scale: f32,          // of a score, times log2(e)
  query_offset: u32,   // float of sequence 0, head 0; heads follow each other
  query_stride: u32,   // floats from a sequence to the next
  key_offset: u32,
  key_stride: u32,
  value_offset: u32,
  value_stride: u32,
  rows: u32,           // sequences * query heads
}

// First floats of a row's vectors, and its KV head.
struct NewPlace { query: u32, key: u32, value: u32, kv_head: u32 }

fn place_of(current: Current, row: u32) -> NewPlace {
  let sequence = row / current.heads;
  let head = row % current.heads;
  let kv_head = head / current.group;
  return NewPlace(
    current.query_offset + sequence * current.query_stride + head * current.key_width,
    current.key_offset + sequence * current.key_stride + kv_head * current.key_width,
    current.value_offset + sequence * current.value_stride + kv_head * current.value_width,
    kv_head,
  );
}

// Weight of the current token: 2^(score - peak). Without fade's bound, which would turn a NaN into a weight of 0.
fn own_weight(score: f32, peak: f32) -> f32 { return exp2(score - peak); }

// 2^(m - peak), for m of no scores as well.
fn fade(m: f32, peak: f32) -> f32 { return exp2(max(m - peak, -200.0)); }
