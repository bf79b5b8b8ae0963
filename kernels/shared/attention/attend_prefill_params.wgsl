// Members that the parameters of both kernels of a prompt's attention begin with.
  keys: CachedRow,
  values: CachedRow,
  tiles: u32,           // of a cached row
  first_row: u32,       // cached row of the first sequence's first head
  kv_heads: u32,
  group: u32,
  queries: u32,         // tokens of a chunk, room for the longest
  key_width: u32,
  value_width: u32,
  scale: f32,           // of a score, times log2(e)
  query_offset: u32,    // float of token 0, head 0; heads follow each other
  query_row: u32,       // floats from a token to the next, through all sequences
  output_offset: u32,
  output_row: u32,
  branch_width: u32,
  branch_heads: u32,    // 1: all KV heads share a branch key
  branch_offset: u32,   // of the branch's queries
  branch_row: u32,
  branch_head: u32,     // floats from a query head to the next
  branch_tokens: u32,   // branch keys of a sequence
  once: u32,            // 1; keeps compilers from unrolling
