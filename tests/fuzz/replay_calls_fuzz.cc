// SPDX-License-Identifier: Apache-2.0
// For any calls of two runs: the buffer answers, keeps to its tables' capacities and its memory,
// and never changes for a caller that is not its owner's newest start. What it stores is whole.
#include <list>
#include <memory>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "services/buffer/replay_service.h"
#include "telemetry/metrics.h"
#include "tests/fuzz/call_script.h"
#include "tests/fuzz/scratch.h"
#include "tests/fuzz/served_stream.h"

namespace oxbow::buffer {
namespace {

constexpr uint64_t kBest = 4, kEntryBytes = 1 << 12, kCallBytes = 1 << 14;

enum Call : uint8_t {
  kOffer,
  kEndOffer,
  kRead,
  kDraw,
  kAdvance,
  kCheckpoint,
  kRestore,
  kInfo,
  kList,
  kVerify,
  kCalls
};

std::vector<replay::TablePolicy> Tables() {
  auto tables = replay::AdaptationTables(/*prompts=*/2, /*groups=*/3, /*steps=*/3);
  tables.insert(tables.begin(), replay::BestTable(kBest));
  return tables;
}

// A store of one input, in a directory of its own.
class Buffer {
 public:
  explicit Buffer(const std::filesystem::path& directory)
      : store_(Opened(directory)),
        metrics_(registry_),
        service_({.entry_bytes_max = kEntryBytes,
                  .offer_bytes_max = kCallBytes,
                  .streams = fuzz::NoThreads()},
                 *store_, metrics_, clock_) {}

  void Do(const fuzz::CallStep& step) {
    const StoreInfo before = store_->Info();
    caller_.reset();
    Answer(step);
    const StoreInfo after = store_->Info();
    for (const TableState& table : after.tables) {
      OXBOW_CHECK(table.entries <= table.policy.capacity) << table.policy.name << table.entries;
    }
    CheckOwner(step, before, after);
  }

  ~Buffer() {
    offer_.reset();
    fuzz::RunToTheEnd(service_.streams());
    CheckWhole();
  }

 private:
  using OfferCall = fuzz::ServedStream<v1::OfferRequest, v1::OfferResponse>;
  using ReadCall = fuzz::ServedStream<v1::ReadRequest, ReadAnswer>;

  static std::unique_ptr<ReplayStore> Opened(const std::filesystem::path& directory) {
    auto store = ReplayStore::Open({.directory = directory, .tables = Tables()});
    OXBOW_CHECK(store.ok()) << store.status().ToString();
    return *std::move(store);
  }

  void Answer(const fuzz::CallStep& step) {
    switch (step.call) {
      case kOffer:
        return Offer(step);
      case kEndOffer:
        caller_ = offers_;
        if (offer_ != nullptr) offer_->End(/*cancelled=*/!step.message.empty());
        return offer_.reset();
      case kRead:
        return Read(step);
      case kDraw:
        return Unary(step, &ReplayService::Draw);
      case kAdvance:
        return Unary(step, &ReplayService::Advance);
      case kCheckpoint:
        return Unary(step, &ReplayService::Checkpoint);
      case kRestore:
        return Unary(step, &ReplayService::Restore);
      case kInfo:
        return Unary(step, &ReplayService::Info);
      case kList:
        return Unary(step, &ReplayService::List);
      default:
        return Unary(step, &ReplayService::Verify);
    }
  }

  template <typename Request, typename Response>
  void Unary(const fuzz::CallStep& step,
             grpc::Status (ReplayService::*method)(grpc::ServerContext*, const Request*,
                                                   Response*)) {
    Request request;
    Response response;
    if (!fuzz::Parse(step.message, request)) return;
    const grpc::Status status = (service_.*method)(nullptr, &request, &response);
    if constexpr (requires { request.run_uid(); }) {
      if (status.ok()) caller_.emplace(Epoch(request.epoch()), request.run_uid());
    }
    if constexpr (requires { request.take_from(); }) take_from_ = request.take_from();
  }

  void Offer(const fuzz::CallStep& step) {
    if (offer_ == nullptr) {
      auto* reactor = ReplayService::OfferStream::Start(
          contexts_.emplace_back(), service_.streams(),
          [this](ReplayService::OfferStream& stream) { return service_.Offer(stream); },
          std::nullopt);
      offer_ = std::make_unique<OfferCall>(reactor, fuzz::RunnerOf(service_.streams()),
                                           [](const v1::OfferResponse&) {});
    }
    v1::OfferRequest request;
    if (fuzz::Parse(step.message, request)) {
      offers_.emplace(Epoch(request.epoch()), request.run_uid());
    }
    offer_->Send(step.message);
    if (offer_->ended() || offer_->status().has_value()) offer_.reset();
  }

  void Read(const fuzz::CallStep& step) {
    auto* reactor = ReplayService::ReadStream::Start(
        contexts_.emplace_back(), service_.streams(),
        [this](ReplayService::ReadStream& stream) { return service_.Read(stream); }, std::nullopt);
    uint64_t bytes = 0;
    ReadCall call(reactor, fuzz::RunnerOf(service_.streams()), [&](const ReadAnswer& part) {
      const v1::ReadResponse& message = part.message;
      OXBOW_CHECK(!message.has_chunk() || message.chunk().offset() == bytes)
          << message.chunk().offset();
      if (message.has_chunk()) bytes += part.latents.bytes();
    });
    call.Send(step.message);
    OXBOW_CHECK(bytes <= kEntryBytes) << bytes;
  }

  // An owner is taken by the first caller with a name, or by Restore from the owner that it names.
  // A change never comes from an older start.
  void CheckOwner(const fuzz::CallStep& step, const StoreInfo& before, const StoreInfo& after) {
    const bool taken = step.call == kRestore && take_from_ == NameOf(before.owner);
    if (before.owner.run != after.owner.run) {
      OXBOW_CHECK(before.owner.run.empty() || taken)
          << before.owner.run << " lost its buffer to " << after.owner.run;
    }
    OXBOW_CHECK(taken || after.epoch >= before.epoch) << after.epoch.value;
    const bool changed = before.step != after.step || before.entries != after.entries;
    if (changed && !taken && !before.owner.run.empty()) {
      OXBOW_CHECK(caller_.has_value() && caller_->run == before.owner.run &&
                  caller_->epoch >= before.epoch)
          << "changed for another caller than " << before.owner.run;
    }
  }

  void CheckWhole() {
    std::string cursor;
    do {
      const absl::StatusOr<VerifiedPage> page = store_->Verify(cursor, 1000);
      OXBOW_CHECK(page.ok()) << page.status().ToString();
      for (const VerifiedRecord& entry : page->entries) {
        for (const std::string& problem : entry.problems) {
          OXBOW_CHECK(!absl::StrContains(problem, "missing")) << problem;
          OXBOW_CHECK(!absl::StrContains(problem, "no message")) << problem;
          OXBOW_CHECK(!absl::StrContains(problem, "header is of another")) << problem;
        }
      }
      cursor = page->next;
    } while (!cursor.empty());
  }

  FakeClock clock_;
  const std::unique_ptr<ReplayStore> store_;
  prometheus::Registry registry_;
  ReplayMetrics metrics_;
  std::list<grpc::CallbackServerContext> contexts_;
  ReplayService service_;
  std::unique_ptr<OfferCall> offer_;
  std::optional<Caller> offers_;  // The sender of the last message of an Offer.
  std::optional<Caller> caller_;  // The caller of the call that may change the store.
  std::string take_from_;
};

}  // namespace
}  // namespace oxbow::buffer

std::vector<const google::protobuf::Message*> oxbow::fuzz::CallMessages() {
  return {&v1::OfferRequest::default_instance(),   nullptr,
          &v1::ReadRequest::default_instance(),    &v1::DrawRequest::default_instance(),
          &v1::AdvanceRequest::default_instance(), &v1::CheckpointRequest::default_instance(),
          &v1::RestoreRequest::default_instance(), &v1::InfoRequest::default_instance(),
          &v1::ListRequest::default_instance(),    &v1::VerifyRequest::default_instance()};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  fuzz::BeQuiet();
  static const fuzz::Scratch scratch;
  const std::filesystem::path directory = scratch.path() / "store";
  {
    buffer::Buffer store(directory);
    for (const fuzz::CallStep& step : fuzz::Script(data, size, buffer::kCalls)) store.Do(step);
  }
  std::filesystem::remove_all(directory);
  return 0;
}
