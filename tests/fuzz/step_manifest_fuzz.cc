// SPDX-License-Identifier: Apache-2.0
// For any commands of rank 0: their pieces become one manifest, which cut again and put together is
// the same, and each of its groups can be planned.
#include "base/check.h"
#include "google/protobuf/util/message_differencer.h"
#include "services/learner/ranks/step_manifest.h"
#include "tests/fuzz/call_script.h"

std::vector<const google::protobuf::Message*> oxbow::fuzz::CallMessages() {
  return {&v1::RankCommand::default_instance()};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  using google::protobuf::util::MessageDifferencer;
  fuzz::BeQuiet();
  v1::StepManifest whole;
  for (const fuzz::CallStep& step : fuzz::Script(data, size, 1)) {
    v1::RankCommand command;
    if (!fuzz::Parse(step.message, command) || !command.has_step()) continue;
    if (learner::AddPiece(std::move(*command.mutable_step()), whole)) break;
  }
  v1::StepManifest again;
  const auto pieces = learner::InPieces(whole, /*bytes_max=*/256);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool last = learner::AddPiece(pieces[i].step(), again);
    OXBOW_CHECK(last == (i + 1 == pieces.size())) << i << " of " << pieces.size();
  }
  OXBOW_CHECK(again.SerializeAsString() == [&] {
    v1::StepManifest plain;  // Without what this version does not know.
    plain.set_step(whole.step());
    *plain.mutable_groups() = whole.groups();
    return plain.SerializeAsString();
  }());
  for (const v1::StepManifest::Item& item : whole.groups()) {
    const auto planned = learner::PlannedFrom(LearnerStep(whole.step()), item);
    OXBOW_CHECK((planned.head() != nullptr) == item.mixed());
    (void)learner::WithoutLatents(item.group(), learner::KeptLatents::kOffer);
  }
  return 0;
}
