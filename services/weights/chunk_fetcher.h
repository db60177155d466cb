// SPDX-License-Identifier: Apache-2.0
// Fetches the missing chunks of a download from the first of several sources that has them.
//
//   peer --fault--> peer --fault--> learner, again and again while it makes progress
//
// A peer gets one chance per snapshot. After wrong bytes, silence or a broken connection the
// download goes on with the next source and keeps all chunks that have been verified. The deadline
// limits silence, not the whole fetch: a large snapshot over a slow connection is fine, a source
// that falls silent is not.
#pragma once

#include <cstdint>
#include <memory>
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

class ChunkFetcher {
 public:
  struct Options {
    Epoch epoch;
    std::string worker_id;
    absl::Duration peer_silence = absl::Seconds(3);      // The longest a peer may be silent,
    absl::Duration learner_silence = absl::Seconds(60);  // and the learner.
    int tries = 8;  // Calls to the learner in a row that bring no new verified chunk.
    absl::Duration backoff_first = absl::Milliseconds(50);
    absl::Duration backoff_max = absl::Seconds(2);
  };

  ChunkFetcher(Options options, FollowMetrics& metrics, const Clock& clock);
  ~ChunkFetcher();

  // Returns when `download` is complete. `faults` gets the faults of peers to report, also if the
  // download fails. Errors of the learner: kNotFound if it no longer has a chunk, kAborted in
  // another epoch, kDataLoss when the tries are used up. kCancelled after Cancel. One call at a
  // time.
  absl::Status Fetch(Download& download, const std::vector<v1::WatchResponse::Peer>& peers,
                     const std::string& learner, std::vector<v1::ReportPeerRequest>& faults);

  // Ends the call in progress and all later ones. Any thread may call it.
  void Cancel();

 private:
  // One call to one source. `stalled` is set if it was ended for its silence.
  absl::Status FetchOnce(Download& download, const std::string& endpoint, bool peer, bool* stalled);
  absl::Status FetchFromLearner(Download& download, const std::string& endpoint);
  bool Sleep(absl::Duration duration);  // False: cancelled.

  const Options options_;
  FollowMetrics& metrics_;

  rpc::SilenceGuard guard_;
  absl::Notification cancelled_;
};

}  // namespace oxbow::weights
