// SPDX-License-Identifier: Apache-2.0
// For any watchers, addresses and accusations: nobody is sent to another host than the one from
// which a watcher calls, or to itself.
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rpc/tls.h"
#include "services/weights/relay_roster.h"
#include "tests/fuzz/call_script.h"
#include "tests/fuzz/tokenizer_input.h"

namespace oxbow::weights {
namespace {

class Watchers {
 public:
  void Do(const fuzz::CallStep& step) {
    if (step.call == 0) {
      Join(step.message);
    } else if (step.call == 1) {
      v1::ReportPeerRequest report;
      if (fuzz::Parse(step.message, report)) roster_.Accuse(report, "10.0.0.1");
    } else if (step.call == 2) {
      roster_.HeardOf(std::string(step.message));
    } else if (!places_.empty()) {
      roster_.Leave(places_.begin()->first);
      places_.erase(places_.begin());
    }
    for (const auto& [ticket, worker] : places_) CheckPeers(ticket, worker);
    OXBOW_CHECK(roster_.watchers() <= places_.size()) << roster_.watchers();
  }

 private:
  // Worker, the address that it says, and gRPC's name of its peer, divided by byte 30.
  void Join(std::string_view message) {
    const auto parts =
        fuzz::Parts(reinterpret_cast<const uint8_t*>(message.data()), message.size(), 3);
    const std::string host = PeerHost(parts[2]);
    const std::string endpoint = RelayEndpoint(parts[1], parts[2]);
    if (!endpoint.empty()) endpoints_.insert(endpoint);
    const bool here = host.empty() || rpc::IsLoopback(host);  // May name any loopback address.
    OXBOW_CHECK(endpoint.empty() || here || absl::StartsWith(endpoint, absl::StrCat(host, ":")))
        << endpoint << " from " << parts[2];
    places_[roster_.Join(parts[0], endpoint, host)] = parts[0];
  }

  void CheckPeers(RelayRoster::Ticket ticket, const std::string& worker) {
    for (const v1::WatchResponse::Peer& peer : roster_.PeersOf(ticket)) {
      OXBOW_CHECK(endpoints_.contains(peer.endpoint())) << peer.endpoint();
      OXBOW_CHECK(peer.worker_id() != worker) << worker << " is its own peer";
    }
  }

  RelayRoster roster_{2};
  std::map<RelayRoster::Ticket, std::string> places_;
  std::set<std::string> endpoints_;
};

}  // namespace
}  // namespace oxbow::weights

std::vector<const google::protobuf::Message*> oxbow::fuzz::CallMessages() {
  return {nullptr, &v1::ReportPeerRequest::default_instance(), nullptr, nullptr};
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  fuzz::BeQuiet();
  weights::Watchers watchers;
  for (const fuzz::CallStep& step : fuzz::Script(data, size, 4)) watchers.Do(step);
  return 0;
}
