#include "tasks/pretraining/example_tensors.h"

namespace oxbow::tasks {

model::ClipTextParams SmallTextEncoder(int64_t begin, int64_t end, int64_t length) {
  model::ClipTextParams params;
  params.vocab_size = end + 1;
  params.hidden_size = 64;
  params.intermediate_size = 128;
  params.projection_dim = 64;
  params.num_hidden_layers = 2;
  params.num_attention_heads = 2;
  params.max_position_embeddings = length;
  params.hidden_act = "quick_gelu";
  params.bos_token_id = begin;
  params.eos_token_id = end;
  params.pad_token_id = end;
  return params;
}

}  // namespace oxbow::tasks
