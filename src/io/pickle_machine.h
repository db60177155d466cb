// SPDX-License-Identifier: Apache-2.0
// A small, closed part of Python's pickle language: enough for the files that torch.save writes of
// a state dict, and unable to run anything.
//
// A pickle is a program for a stack machine (docs.python.org/3/library/pickletools.html). Here it
// can build numbers, texts, tuples, lists and dicts. Whatever else it asks for, a global by name, a
// call of one, or an object that is stored elsewhere, goes to PickleCalls, which allows or refuses
// it. No Python code is looked up, loaded or executed. Each opcode that is not listed in the .cc
// ends the parse.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::io {

struct PickleValue {
  enum class Kind { kNone, kBool, kInt, kFloat, kText, kTuple, kList, kDict, kGlobal, kObject };

  Kind kind = Kind::kNone;
  int64_t integer = 0;              // kInt, kBool; kObject: what PickleCalls likes.
  double number = 0;                // kFloat
  std::string_view text;            // kText: a part of the pickle; kGlobal: "module name".
  std::vector<PickleValue*> items;  // kTuple, kList; kDict: key, value, key, value, ...
};

// Owns values. They may point to each other in circles.
class PickleHeap {
 public:
  PickleValue* New(PickleValue value) { return &values_.emplace_back(std::move(value)); }
  std::string_view Keep(std::string text) { return texts_.emplace_back(std::move(text)); }
  size_t size() const { return values_.size() + texts_.size(); }

 private:
  std::deque<PickleValue> values_;
  std::deque<std::string> texts_;
};

// What a pickle may ask for. An error ends the parse.
class PickleCalls {
 public:
  virtual ~PickleCalls() = default;

  // A global is named ("torch FloatStorage", a space between module and name).
  virtual absl::Status Allow(std::string_view global) = 0;
  // A global that was allowed is called.
  virtual absl::StatusOr<PickleValue*> Call(std::string_view global, const PickleValue& arguments,
                                            PickleHeap& heap) = 0;
  // An object that lies outside the pickle.
  virtual absl::StatusOr<PickleValue*> Find(const PickleValue& id, PickleHeap& heap) = 0;
};

inline constexpr size_t kPickleBytesMax = size_t{16} << 20;
inline constexpr size_t kPickleValuesMax = size_t{1} << 20;

// Runs a pickle and returns what it leaves, which lives in `heap`; texts are parts of `bytes`.
// kDataLoss with the place if it is truncated or malformed or over a limit, kFailedPrecondition for
// an opcode that is not known here; errors of `calls` are passed on.
// `end`, if given, becomes the place behind the pickle.
absl::StatusOr<PickleValue*> RunPickle(std::string_view bytes, PickleCalls& calls, PickleHeap& heap,
                                       size_t* end = nullptr);

}  // namespace oxbow::io
