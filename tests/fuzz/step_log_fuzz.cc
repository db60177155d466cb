// For any bytes as a step log: opening it keeps its whole lines and nothing else. As an epoch file:
// it is refused as damaged, or the next epoch is one more.
#include "absl/strings/numbers.h"
#include "base/check.h"
#include "base/file.h"
#include "services/learner/step_log.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/scratch.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  static const fuzz::Scratch scratch;
  const std::string text(fuzz::Text(data, size));
  scratch.Write("steps.jsonl", text);
  OXBOW_CHECK(learner::StepLog::Open(scratch.path() / "steps.jsonl").ok());
  const auto kept = ReadFile(scratch.path() / "steps.jsonl");
  OXBOW_CHECK(kept.ok() && *kept == text.substr(0, text.rfind('\n') + 1))
      << kept.status().ToString();

  scratch.Write("epoch", text);
  uint64_t before = 0;
  const bool number = absl::SimpleAtoi(text, &before);
  const auto next = learner::NextEpoch(scratch.path() / "epoch");
  OXBOW_CHECK(next.ok() || absl::IsDataLoss(next.status())) << next.status().ToString();
  OXBOW_CHECK(!next.ok() || (number && next->value > before)) << next->value << " after " << text;
  return 0;
}
