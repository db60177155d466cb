// A reward: a function of an image and its prompt. services/reward/scorer_table.cc lists all.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/image8.h"

namespace oxbow::reward {

class Scorer {
 public:
  virtual ~Scorer() = default;

  virtual std::string name() const = 0;
  virtual double value_min() const = 0;
  virtual double value_max() const = 0;
  virtual std::string help() const = 0;  // One line for people.

  // Scores one image. An image that cannot be scored is an error (kInvalidArgument if prompt or
  // image do not fit the scorer), never an invented value: the prompt, the size, the channels and
  // the number of bytes are checked. Pure and thread-safe.
  virtual absl::StatusOr<double> Score(const std::string& prompt_text,
                                       const std::string& prompt_metadata_json,
                                       const Image8& image) const = 0;
};

}  // namespace oxbow::reward
