// SPDX-License-Identifier: Apache-2.0
// Fetches the missing contents of a download by their hash, from the first of several sources that
// has them: chunks of weights, and the conditioning of prompts.
//
//   peer --fault--> peer --fault--> learner, again and again while it makes progress
//
// A peer gets one chance per download. After wrong bytes, silence or a broken connection the
// download goes on with the next source and keeps all that has been verified. The deadline limits
// silence, not the whole fetch: a large snapshot over a slow connection is fine, a source that
// falls silent is not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "oxbow/v1/weight_channel.grpc.pb.h"
#include "rpc/silence_guard.h"
#include "services/weights/download.h"
#include "services/weights/weights_metrics.h"

namespace oxbow::weights {

using Peer = v1::WatchResponse::Peer;
using PeerFaults = std::vector<v1::ReportPeerRequest>;

// Thread-safe, for downloads that are each used by one thread.
class ContentFetcher {
 public:
  struct Options {
    Epoch epoch;
    std::string worker_id;
    absl::Duration peer_silence = absl::Seconds(3);      // The longest a peer may be silent,
    absl::Duration learner_silence = absl::Seconds(60);  // and the learner.
    int tries = 8;  // Calls to the learner in a row that bring nothing new that is verified.
    absl::Duration backoff_first = absl::Milliseconds(50);
    absl::Duration backoff_max = absl::Seconds(2);
    bool at_once = false;  // Peers do not wait for what they have not got yet.
    std::function<void(uint64_t bytes, Source source)> received;  // Counts what comes.
  };

  ContentFetcher(Options options, FollowMetrics& metrics, const Clock& clock);
  ~ContentFetcher();

  // Returns when `download` is complete. `faults` gets the faults of peers to report, also if the
  // download fails. Errors of the learner: kNotFound if it no longer has a content, kAborted in
  // another epoch, the last one when the tries are used up. kCancelled after Cancel.
  absl::Status Fetch(Download& download, const std::vector<Peer>& peers, const std::string& learner,
                     PeerFaults& faults);

  // The first part of it. OK also if something is still missing; kCancelled
  // after Cancel.
  absl::Status FetchFromPeers(Download& download, const std::vector<Peer>& peers,
                              PeerFaults& faults);

  // One call to one source. kDataLoss and kInvalidArgument: it sent wrong bytes, or too few;
  // kDeadlineExceeded: it was silent.
  absl::Status Ask(Download& download, const std::string& endpoint, Source source);

  // Tells the learner. Best effort: a peer that is not reported costs the next worker a wait.
  void Report(const std::string& learner, PeerFaults faults);

  // Ends the calls in progress and all later ones. Any thread may call it.
  void Cancel();

  // Guards other calls to the learner that end with these.
  rpc::SilenceGuard& calls() { return guard_; }

 private:
  absl::Status FetchFromLearner(Download& download, const std::string& endpoint);

  const Options options_;
  FollowMetrics& metrics_;
  rpc::SilenceGuard guard_;
  absl::Notification cancelled_;
};

}  // namespace oxbow::weights
