// SPDX-License-Identifier: Apache-2.0
// For any bytes as a log of RocksDB: its last block is sound, or refused as damaged.
#include "base/check.h"
#include "services/buffer/database.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const fuzz::Scratch scratch;
  scratch.Write("000001.log", fuzz::Text(data, size));
  const absl::Status status = buffer::CheckLogTails(scratch.path());
  OXBOW_CHECK(status.ok() || absl::IsDataLoss(status)) << status.ToString();
  return 0;
}
