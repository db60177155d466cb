// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/verification.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "oxbow/v1/replay_buffer.pb.h"
#include "rpc/convert.h"
#include "run/prompt.h"
#include "services/buffer/database.h"

namespace oxbow::buffer {
namespace {

constexpr uint64_t kTensorBytesMax = uint64_t{1} << 40;
constexpr char kLetters[] = {'e', 'q'};  // Keys of records: best, then the queues.

// A number is infinite or NaN where all bits of its exponent are set.
template <typename Word>
bool NoExponentFull(std::string_view bytes, Word exponent) {
  for (size_t i = 0; i + sizeof(Word) <= bytes.size(); i += sizeof(Word)) {
    Word word;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    if ((word & exponent) == exponent) return false;
  }
  return true;
}

std::string Because(const char* what, const absl::Status& status) {
  return absl::StrCat(what, ": ", std::string(status.message()));
}

// Checks one entry, and keeps what the header says of the latents until they are read.
class EntryCheck {
 public:
  EntryCheck(const Database& database, const Entry& record, std::vector<std::string>& found)
      : database_(database), record_(record), found_(found) {}

  void Run() {
    if (!std::isfinite(record_.value())) Found("reward is not finite");
    CheckHeader();
    CheckConditioning();
    CheckLatents();
  }

 private:
  void Found(std::string problem) { found_.push_back(std::move(problem)); }

  // The part, if it is there and as long as the record says.
  bool Get(const char* what, absl::StatusOr<std::string> got, uint64_t size, std::string& part) {
    if (!got.ok()) {
      Found(Because(what, got.status()));
    } else if (got->size() != size) {
      Found(absl::StrCat(what, " has ", got->size(), " bytes, not ", size));
    } else {
      part = *std::move(got);
      return true;
    }
    return false;
  }

  void CheckHeader() {
    std::string bytes;
    if (!Get("header", database_.Header(record_.id), record_.header_bytes, bytes)) {
      return;
    }
    v1::ReplayEntry header;
    if (!header.ParseFromString(bytes)) return Found("header is no message");
    if (header.entry_id() != record_.id.value) Found("header is of another entry");
    if (header.prompt().id() != record_.prompt.value) Found("header is of another prompt");
    if (header.birth_step() != record_.birth.value) Found("header has another birth step");
    if (header.raw_reward() != record_.reward) Found("header has another reward");
    const v1::Prompt& prompt = header.prompt();
    if (prompt.id() != run::PromptIdOf(prompt.text(), prompt.metadata_json())) {
      Found("prompt id is not that of its text");
    }
    for (const double sigma : header.sigmas()) {
      if (!std::isfinite(sigma)) return Found("sigmas are not finite");
    }
    CheckTrajectory(header.trajectory(), header);
    for (const v1::Trajectory& member : header.group().trajectories()) {
      CheckTrajectory(member, header);
    }
    TakeLatentHeader(header.trajectory().latents());
  }

  void CheckTrajectory(const v1::Trajectory& trajectory, const v1::ReplayEntry& header) {
    const int steps = trajectory.log_prob_size();
    // Only runs with its schedule read a group again: it may come without noise levels.
    const bool unsaid = header.has_group() && header.sigmas().empty();
    if (trajectory.sde_size() != steps || trajectory.behaviour_version_size() != steps) {
      Found("lists per step have different lengths");
    } else if (steps > 0 && !unsaid && header.sigmas_size() != steps + 1) {
      Found(absl::StrCat("has ", header.sigmas_size(), " sigmas for ", steps, " steps"));
    }
    bool finite = std::isfinite(trajectory.reward());
    for (const float log_prob : trajectory.log_prob()) finite &= std::isfinite(log_prob);
    for (const v1::NamedValue& reward : trajectory.rewards()) {
      finite &= std::isfinite(reward.value());
    }
    if (!finite) Found("log-probs or rewards are not finite");
  }

  void TakeLatentHeader(const v1::Tensor& latents) {
    const absl::StatusOr<uint64_t> bytes = rpc::DeclaredBytes(latents, kTensorBytesMax);
    if (!bytes.ok()) return Found(Because("latents", bytes.status()));
    const uint64_t stored = record_.latent_count * record_.latent_bytes;
    if (*bytes != stored) {
      Found(absl::StrCat("latents declare ", *bytes, " bytes, stored are ", stored));
    }
    if (record_.latent_count > 0) dtype_ = rpc::DTypeFromProto(latents.dtype());
  }

  void CheckConditioning() {
    std::string bytes;
    if (!Get("conditioning", database_.Conditioning(record_), record_.conditioning_bytes, bytes)) {
      return;
    }
    v1::Conditioning conditioning;
    if (!conditioning.ParseFromString(bytes)) return Found("conditioning is no message");
    for (const rpc::PartHeld& part : rpc::PartsOf(conditioning)) {
      const absl::StatusOr<uint64_t> declared = rpc::DeclaredBytes(*part.tensor, kTensorBytesMax);
      if (!declared.ok()) {
        Found(Because("conditioning", declared.status()));
      } else if (*declared != part.tensor->data().size()) {
        Found("conditioning has not the bytes that it declares");
      }
    }
  }

  void CheckLatents() {
    for (uint32_t i = 0; i < record_.latent_count; ++i) {
      std::string latent;
      const std::string what = absl::StrCat("latent ", i);
      if (!Get(what.c_str(), database_.Latents(record_, i, 1), record_.latent_bytes, latent)) {
        continue;
      }
      if (dtype_.ok() && !AllFinite(*dtype_, latent)) Found(absl::StrCat(what, " is not finite"));
    }
  }

  const Database& database_;
  const Entry& record_;
  std::vector<std::string>& found_;
  absl::StatusOr<io::DType> dtype_ = absl::UnknownError("no header");
};

VerifiedRecord VerifyOne(const Database& database, const std::string& key,
                         const std::string& value) {
  const std::optional<Entry> record = DecodeEntry(key, value);
  VerifiedRecord verified;
  verified.entry = EntryOfKey(key);
  verified.table = TableOfRecord(key, value);
  if (!record.has_value()) {
    verified.problems.push_back("record is damaged or of another version");
    return verified;
  }
  verified.prompt = record->prompt;
  verified.retired = record->retired;
  verified.bytes = record->bytes();
  EntryCheck(database, *record, verified.problems).Run();
  return verified;
}

}  // namespace

bool AllFinite(io::DType dtype, std::string_view bytes) {
  switch (dtype) {
    case io::DType::kF32:
      return NoExponentFull<uint32_t>(bytes, 0x7f800000u);
    case io::DType::kF16:
      return NoExponentFull<uint16_t>(bytes, 0x7c00u);
    case io::DType::kBF16:
      return NoExponentFull<uint16_t>(bytes, 0x7f80u);
    case io::DType::kF64:
      return NoExponentFull<uint64_t>(bytes, 0x7ff0000000000000u);
    default:
      return true;
  }
}

absl::StatusOr<VerifiedPage> VerifyEntries(const Database& database, const std::string& cursor,
                                           uint64_t limit) {
  if (!cursor.empty() && cursor[0] != kLetters[0] && cursor[0] != kLetters[1]) {
    return absl::InvalidArgumentError("not a cursor of Verify");
  }
  VerifiedPage page;
  uint64_t bytes = 0;
  for (const char letter : kLetters) {
    if (!cursor.empty() && cursor[0] > letter) continue;
    std::string key = cursor.empty() || cursor[0] != letter ? "" : cursor;
    while (true) {
      OXBOW_ASSIGN_OR_RETURN(const auto next, database.After(letter, key));
      if (!next.has_value()) break;
      if (page.entries.size() >= limit || bytes >= kVerifiedBytesMax) {
        page.next = key.empty() ? std::string(1, letter) : key;
        return page;
      }
      key = next->first;
      page.entries.push_back(VerifyOne(database, key, next->second));
      bytes += page.entries.back().bytes;
    }
  }
  return page;
}

}  // namespace oxbow::buffer
