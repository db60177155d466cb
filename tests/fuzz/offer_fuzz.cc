// SPDX-License-Identifier: Apache-2.0
// For any messages of an Offer call: entries are put together or refused, none is larger than its
// limit, and the memory budget is whole afterwards.
#include <google/protobuf/stubs/logging.h>

#include "base/check.h"
#include "oxbow/v1/replay_buffer.pb.h"
#include "services/buffer/entry_conversion.h"
#include "services/buffer/offer_assembly.h"
#include "tests/fuzz/bytes_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  [[maybe_unused]] static const auto loud = google::protobuf::SetLogHandler(nullptr);
  constexpr uint64_t kBudget = 1 << 20, kEntryMax = 1 << 16;
  ByteBudget budget(kBudget);
  {
    buffer::OfferAssembly assembly(kEntryMax, budget);
    for (const std::string_view bytes : fuzz::Messages(fuzz::Text(data, size))) {
      v1::OfferRequest request;
      if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return 0;
      if (!assembly.Add(request).ok()) break;
      OXBOW_CHECK(assembly.bytes() <= kBudget);
    }
    for (const buffer::Entry& entry : assembly.Finish()) {
      OXBOW_CHECK(entry.latents.size() <= kEntryMax);
      if (entry.invalid.empty()) (void)buffer::EntryToProto(entry);
    }
  }
  OXBOW_CHECK(budget.TryTake(kBudget).has_value()) << "memory of the call was not returned";
  return 0;
}
