// SPDX-License-Identifier: Apache-2.0
#include "services/buffer/offer_assembly.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "rpc/convert.h"
#include "services/buffer/entry_conversion.h"

namespace oxbow::buffer {
namespace {

constexpr uint64_t kChunkBytesMax = 4 << 20;

}  // namespace

OfferAssembly::OfferAssembly(uint64_t entry_bytes_max, ByteBudget& budget)
    : entry_bytes_max_(entry_bytes_max), budget_(budget) {}

absl::Status OfferAssembly::Take(uint64_t bytes) {
  if (bytes > budget_.bytes_max() - taken_.bytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat("one Offer call has more bytes than there may be at a time, limit ",
                     budget_.bytes_max(), "; offer fewer entries per call"));
  }
  std::optional<ByteBudget::Hold> taken = budget_.TryTake(bytes);
  if (!taken.has_value()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too many offered bytes at a time, limit ", budget_.bytes_max(),
                     "; offer again later or raise --offer-bytes-max"));
  }
  taken_.Merge(*std::move(taken));
  return absl::OkStatus();
}

absl::Status OfferAssembly::Add(v1::OfferRequest request) {
  if (started_ && (Epoch(request.epoch()) != caller_.epoch || request.run_uid() != caller_.run)) {
    return absl::InvalidArgumentError(
        absl::StrCat("epoch or run changes within one Offer: ", caller_.epoch.value, " of ",
                     caller_.run, ", ", request.epoch(), " of ", request.run_uid()));
  }
  started_ = true;
  caller_ = CallerOf(request);
  if (request.has_header()) return AddHeader(std::move(*request.mutable_header()));
  if (request.has_chunk()) return AddChunk(request.chunk());
  if (request.has_whole()) {
    for (v1::ReplayEntry& entry : *request.mutable_whole()->mutable_entries()) {
      OXBOW_RETURN_IF_ERROR(AddWhole(std::move(entry)));
    }
    return absl::OkStatus();
  }
  if (request.ends_batch()) return absl::OkStatus();
  return absl::InvalidArgumentError("Offer message is neither header nor chunk");
}

absl::Status OfferAssembly::AddWhole(v1::ReplayEntry entry) {
  std::string latents;
  if (!entry.trajectory().latents().data().empty()) {
    latents = std::move(*entry.mutable_trajectory()->mutable_latents()->mutable_data());
    entry.mutable_trajectory()->mutable_latents()->clear_data();
  }
  OXBOW_RETURN_IF_ERROR(AddHeader(std::move(entry)));
  received_ = latents.size();
  Entry& added = entries_.back();
  if (!added.invalid.empty()) return absl::OkStatus();
  if (received_ > declared_) {
    added.invalid = MoreThanDeclared();
  } else {
    added.latents = std::move(latents);
  }
  return absl::OkStatus();
}

std::string OfferAssembly::MoreThanDeclared() const {
  return absl::StrCat("more latent bytes than declared: ", declared_);
}

absl::Status OfferAssembly::AddHeader(v1::ReplayEntry header) {
  EndEntry();
  const uint64_t size = header.ByteSizeLong();
  OXBOW_RETURN_IF_ERROR(Take(size));
  const absl::StatusOr<uint64_t> declared =
      rpc::DeclaredBytes(header.trajectory().latents(), entry_bytes_max_);
  received_ = 0;
  declared_ = declared.value_or(0);
  Entry invalid;
  invalid.id = EntryId(header.entry_id());
  absl::StatusOr<Entry> entry = EntryFromProto(std::move(header));
  if (!entry.ok()) {
    invalid.invalid = std::string(entry.status().message());
  } else if (!declared.ok()) {
    invalid.invalid = absl::StrCat("latents: ", std::string(declared.status().message()));
  } else if (declared_ == 0 && entry->latent_count > 0) {
    invalid.invalid = "latents have no bytes";
  } else if (declared_ + size > entry_bytes_max_) {
    invalid.invalid = absl::StrCat("entry is larger than ", entry_bytes_max_, " bytes");
  } else {
    OXBOW_RETURN_IF_ERROR(Take(declared_));
    entries_.push_back(*std::move(entry));
    return absl::OkStatus();
  }
  entries_.push_back(std::move(invalid));
  return absl::OkStatus();
}

absl::Status OfferAssembly::AddChunk(const v1::OfferRequest::Chunk& chunk) {
  if (entries_.empty()) return absl::InvalidArgumentError("Offer starts with a chunk");
  if (chunk.data().empty() || chunk.data().size() > kChunkBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk must have 1 to ", kChunkBytesMax, " bytes: ", chunk.data().size()));
  }
  if (chunk.offset() != received_) {
    return absl::InvalidArgumentError(
        absl::StrCat("chunk out of order, expected offset ", received_, ": ", chunk.offset()));
  }
  received_ += chunk.data().size();
  Entry& entry = entries_.back();
  if (!entry.invalid.empty()) return absl::OkStatus();
  if (received_ <= declared_) {
    entry.latents.reserve(declared_);
    entry.latents += chunk.data();
  } else {
    entry.invalid = MoreThanDeclared();
  }
  return absl::OkStatus();
}

void OfferAssembly::EndEntry() {
  if (entries_.empty() || !entries_.back().invalid.empty() || received_ == declared_) return;
  entries_.back().invalid =
      absl::StrCat("fewer latent bytes than declared: ", received_, " of ", declared_);
}

std::vector<Entry> OfferAssembly::Finish() {
  EndEntry();
  return std::move(entries_);
}

}  // namespace oxbow::buffer
