// SPDX-License-Identifier: Apache-2.0
// A reward: a function of pictures or videos and their prompts. services/reward/scorer_table.cc
// lists all.
//
// A scorer gets many items at a time, of any prompts, because models on a device are fast only so.
// Its score of an item depends on that item alone: a batch of n has the scores of n batches of
// one. A groupwise reward (a rank, say) depends on the items of the same group, too.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/image8.h"

namespace oxbow::reward {

// Facts of a reward that callers know without asking it.
struct RewardFacts {
  std::string name;
  double value_min = 0;
  double value_max = 1;
  std::string help;        // One line for people.
  bool groupwise = false;  // Needs all items of a group in one batch.
  // Scores of equal identities may be compared. It names weights (a hash), preprocessing and
  // variant, so that another model behind the same name is noticed.
  std::string identity;
  std::vector<std::string> metadata_keys;  // That the metadata of a prompt must have.
  uint32_t batch_max = 0;                  // Items of one ScoreBatch; 0: any number.
  bool images = true;
  bool videos = false;  // Sees the frames of a video together, and makes one score of them.
  // It reads the frames 0, n, 2n, ... of a video. The others need not travel.
  uint32_t frames_every = 1;
  // Results that a server should keep, if its config does not say; 0: none.
  uint32_t cache_items = 0;

  // A scorer of pictures alone scores a video, too: frame by frame, and the mean is the score
  // (core/reward/shown_items.h). Not if it compares the members of a group.
  bool takes_videos() const { return videos || (images && !groupwise); }
};

// One picture, or the frames of one video, with its prompt. The caller keeps alive what it refers
// to.
struct Item {
  std::string_view prompt;
  std::string_view metadata_json;   // A JSON object, or empty.
  absl::Span<const Image8> frames;  // One is a picture. More, all of one size, are a video.
  uint64_t group = 0;               // Items of one group have one value; 0: of no group.
  uint32_t frames_every = 1;        // `frames` are the frames 0, n, 2n, ... of a video.

  const Image8& picture() const { return frames.front(); }
  // One frame may be all that is read of a video.
  bool is_video() const { return frames.size() > 1 || frames_every > 1; }
};

struct Score {
  double value = 0;
  std::string note = {};  // A remark for people: a text read, an answer given.
  bool cached = false;    // It was given before, and kept.
};

class Scorer {
 public:
  virtual ~Scorer() = default;

  virtual const RewardFacts& facts() const = 0;

  // One result per item, in order. An item that cannot be scored is an error (kInvalidArgument if
  // prompt, metadata or image do not fit the scorer), never an invented value: the prompt, the
  // size, the channels and the number of bytes are checked. Requires 1..batch_max items with a
  // frame at least, none of a medium that the facts exclude. The frames of a video are those that
  // the facts name (frames_every). Pure in its items.
  virtual std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) = 0;

  // Calls of ScoreBatch that may run at a time: 1 for a model on a device. An engine that is not
  // thread-safe has a pool of its own.
  virtual int concurrency_max() const = 0;

  // The process ends: what waits for a server of others ends within a second, and later batches at
  // once, with kUnavailable. A scorer that computes has nothing to do. Thread-safe.
  virtual void Stop() {}
};

// A scorer that looks at one picture at a time, on the processor.
class PictureScorer : public Scorer {
 public:
  explicit PictureScorer(RewardFacts facts) : facts_(std::move(facts)) {}

  const RewardFacts& facts() const final { return facts_; }
  std::vector<absl::StatusOr<Score>> ScoreBatch(absl::Span<const Item> items) final;
  int concurrency_max() const override { return std::numeric_limits<int>::max(); }

  // Scores one picture, as ScoreBatch says. Thread-safe.
  virtual absl::StatusOr<Score> ScorePicture(std::string_view prompt,
                                             std::string_view metadata_json,
                                             const Image8& image) const = 0;

 private:
  const RewardFacts facts_;
};

// One picture alone.
absl::StatusOr<Score> ScoreOne(Scorer& scorer, std::string_view prompt,
                               std::string_view metadata_json, const Image8& image);

}  // namespace oxbow::reward
