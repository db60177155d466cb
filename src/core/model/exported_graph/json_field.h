// SPDX-License-Identifier: Apache-2.0
// A value of a JSON document that knows where it stands, so that every complaint names the key:
// "nodes[12].args.input: not a slot". Children point at their parent, which must outlive them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace oxbow::model::exported {

class Field {
 public:
  explicit Field(const nlohmann::json& root) : json_(&root) {}

  const nlohmann::json& json() const { return *json_; }

  // kInvalidArgument: "{path}: {what}".
  absl::Status Error(const std::string& what) const;

  // A member of an object. Errors name what is missing.
  absl::StatusOr<Field> At(std::string_view key) const;
  // Null without such a member.
  std::optional<Field> Find(std::string_view key) const;
  // An element of a list; requires index < size().
  Field Element(size_t index) const;
  size_t size() const { return json_->size(); }

  absl::Status ExpectObject(std::initializer_list<std::string_view> keys) const;  // And no other.
  absl::Status ExpectList(size_t size_max) const;

  absl::StatusOr<int64_t> Integer(int64_t min, int64_t max) const;
  absl::StatusOr<bool> Bool() const;
  absl::StatusOr<std::string> Text() const;  // Not empty, at most kTextMax bytes.
  static constexpr size_t kTextMax = 512;

 private:
  std::string Path() const;

  const nlohmann::json* json_;
  const Field* parent_ = nullptr;
  std::string_view key_;  // The document's own; empty: an element of a list.
  size_t index_ = 0;
};

}  // namespace oxbow::model::exported
