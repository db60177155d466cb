// SPDX-License-Identifier: Apache-2.0
// A manifest's signature: Ed25519 over everything in it that decides which weights a worker uses.
// The learner makes a key when it starts and hands its public half to workers as they register. So
// a worker believes a manifest whichever way it came, and through the hashes in it every chunk.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "oxbow/v1/weight_channel.pb.h"

namespace oxbow::weights {

// Thread-safe.
class ManifestSigner {
 public:
  ManifestSigner();  // With a new key, which never leaves this object.
  ~ManifestSigner();

  const std::string& public_key() const { return public_key_; }  // 32 raw bytes.
  // Sets `manifest`'s signature. What it covers must not change afterwards.
  void Sign(v1::SnapshotManifest& manifest) const;

 private:
  struct Key;
  const std::unique_ptr<Key> key_;
  std::string public_key_;
};

// OK if the holder of the key that belongs to `public_key` signed `manifest`. kDataLoss otherwise.
// Covers the tensors through the manifest's hash: call CheckManifest, too.
absl::Status CheckSignature(const v1::SnapshotManifest& manifest, const std::string& public_key);

}  // namespace oxbow::weights
