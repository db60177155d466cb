// SPDX-License-Identifier: Apache-2.0
#include "core/model/decoder_architecture.h"
#include "core/model/exported_graph/exported_decoder.h"

namespace oxbow::model {

// The first row that fits is taken, so the one of any class is the last.
const std::vector<DecoderRow>& DecoderTable() {
  static const std::vector<DecoderRow> table = {
      {"", &exported::ReadExportedDecoder},
  };
  return table;
}

}  // namespace oxbow::model
