// SPDX-License-Identifier: Apache-2.0
#include "services/reward/server_line.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "base/log.h"

namespace oxbow::reward {
namespace {

// Whether the server has ended the connection for too many pings, by the words of gRPC.
bool WasPingedTooOften(const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return false;
  const std::string said = absl::AsciiStrToLower(std::string(status.message()));
  return absl::StrContains(absl::StrReplaceAll(said, {{"_", " "}}), "too many pings");
}

std::shared_ptr<v1::Reward::Stub> StubOf(const std::string& endpoint, rpc::Pings pings) {
  return v1::Reward::NewStub(rpc::Connect(endpoint, pings));
}

}  // namespace

ServerLine::ServerLine(std::string endpoint, rpc::Pings pings)
    : endpoint_(std::move(endpoint)), pings_(pings), stub_(StubOf(endpoint_, pings)) {}

std::shared_ptr<v1::Reward::Stub> ServerLine::stub() const {
  absl::MutexLock lock(&mutex_);
  return stub_;
}

rpc::Pings ServerLine::pings() const {
  absl::MutexLock lock(&mutex_);
  return pings_;
}

void ServerLine::Ended(const absl::Status& status) {
  if (!WasPingedTooOften(status)) return;
  absl::MutexLock lock(&mutex_);
  if (std::exchange(pings_, rpc::Pings::kRarely) == rpc::Pings::kRarely) return;
  stub_ = StubOf(endpoint_, rpc::Pings::kRarely);
  OXBOW_LOG(Info) << "the server allows few pings: rare ones from now on"
                  << Field("endpoint", endpoint_);
}

}  // namespace oxbow::reward
