// SPDX-License-Identifier: Apache-2.0
#include "core/model/autoencoder_kl.h"
#include "core/model/autoencoder_kl_wan.h"
#include "core/model/decoder_architecture.h"

namespace oxbow::model {

const std::vector<DecoderRow>& DecoderTable() {
  static const std::vector<DecoderRow> table = {
      {"AutoencoderKL", &ReadAutoencoderKl},
      {"AutoencoderKLWan", &ReadAutoencoderKlWan},
      {"AutoencoderKLQwenImage", &ReadAutoencoderKlWan},
  };
  return table;
}

}  // namespace oxbow::model
