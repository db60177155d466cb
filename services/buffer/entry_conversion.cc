// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/entry_conversion.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "core/replay/table_policy.h"
#include "io/picture_file.h"

namespace oxbow::buffer {
namespace {

constexpr int64_t kLatentsMax = 100'000;

}  // namespace

std::string TableOf(const std::string& name) { return name.empty() ? replay::kBestTable : name; }

absl::StatusOr<Entry> EntryFromProto(v1::ReplayEntry header) {
  const v1::Tensor& latents = header.trajectory().latents();
  if (header.entry_id() == 0) return absl::InvalidArgumentError("entry_id is not set");
  if (!std::isfinite(header.raw_reward())) {
    return absl::InvalidArgumentError(absl::StrCat("raw_reward is ", header.raw_reward()));
  }
  if (!latents.data().empty()) {
    return absl::InvalidArgumentError("latents must travel in chunks, not in the header");
  }
  if (header.trajectory().picture().size() > io::kPreviewBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("the picture has more bytes than ",
                                                   io::kPreviewBytesMax, ": ",
                                                   header.trajectory().picture().size()));
  }
  const std::string table = TableOf(header.table());
  const bool none = table != replay::kBestTable && latents.shape_size() == 0;
  if (!none &&
      (latents.shape_size() < 2 || latents.shape(0) < 1 || latents.shape(0) > kLatentsMax)) {
    return absl::InvalidArgumentError("latents need a shape [steps + 1, ...]");
  }
  Entry entry;
  entry.id = EntryId(header.entry_id());
  entry.table = table;
  entry.prompt = PromptId(header.prompt().id());
  entry.birth = LearnerStep(header.birth_step());
  entry.reward = header.raw_reward();
  entry.latent_count = none ? 0 : static_cast<uint32_t>(latents.shape(0));
  entry.conditioning = header.conditioning().SerializeAsString();
  header.clear_conditioning();
  if (!header.trajectory().picture().empty()) {
    v1::StoredPicture picture;
    picture.set_picture(std::move(*header.mutable_trajectory()->mutable_picture()));
    header.mutable_trajectory()->clear_picture();
    entry.conditioning += picture.SerializeAsString();
  }
  entry.header = header.SerializeAsString();
  return entry;
}

absl::StatusOr<v1::ReplayEntry> EntryToProto(const Entry& entry) {
  v1::ReplayEntry message;
  if (!message.ParseFromString(entry.header)) {
    return absl::DataLossError(
        absl::StrCat("replay store is damaged: header of entry ", entry.id.value));
  }
  v1::StoredPicture picture;
  if (!message.mutable_conditioning()->ParseFromString(entry.conditioning) ||
      !picture.ParseFromString(entry.conditioning)) {
    return absl::DataLossError(
        absl::StrCat("replay store is damaged: conditioning of entry ", entry.id.value));
  }
  message.mutable_conditioning()->DiscardUnknownFields();
  if (message.conditioning().ByteSizeLong() == 0) message.clear_conditioning();
  if (!picture.picture().empty()) {
    message.mutable_trajectory()->set_picture(std::move(*picture.mutable_picture()));
  }
  message.set_raw_reward(entry.value());
  message.set_failures(static_cast<uint32_t>(entry.failures));
  message.set_uses(static_cast<uint32_t>(entry.uses));
  message.set_last_used_step(entry.last_used.value);
  message.set_priority(entry.priority);
  message.set_stored_bytes(entry.bytes());
  return message;
}

v1::OfferOutcome ToProto(Outcome outcome) {
  switch (outcome) {
    case Outcome::kInserted:
      return v1::OFFER_OUTCOME_INSERTED;
    case Outcome::kReplaced:
      return v1::OFFER_OUTCOME_REPLACED;
    case Outcome::kRejectedLower:
      return v1::OFFER_OUTCOME_REJECTED_LOWER;
    case Outcome::kDuplicate:
      return v1::OFFER_OUTCOME_DUPLICATE;
    case Outcome::kRejectedInvalid:
      return v1::OFFER_OUTCOME_REJECTED_INVALID;
  }
  return v1::OFFER_OUTCOME_UNSPECIFIED;
}

v1::VerifyResponse ToProto(const VerifiedPage& page) {
  v1::VerifyResponse response;
  response.set_next_cursor(page.next);
  for (const VerifiedRecord& record : page.entries) {
    v1::VerifiedEntry& entry = *response.add_entries();
    entry.set_entry_id(record.entry.value);
    entry.set_prompt_id(record.prompt.value);
    entry.set_table(record.table);
    entry.set_retired(record.retired);
    entry.set_stored_bytes(record.bytes);
    for (const std::string& problem : record.problems) entry.add_problems(problem);
  }
  return response;
}

}  // namespace oxbow::buffer
