// SPDX-License-Identifier: Apache-2.0
// Entries for tests: every byte follows from the id, so that a reader knows what to expect.
#pragma once

#include <string>

#include "base/philox.h"
#include "services/buffer/replay_client.h"
#include "services/buffer/replay_store.h"

namespace oxbow::buffer {

inline std::string TestBytes(EntryId id, uint64_t part, size_t size) {
  std::string bytes;
  for (uint64_t i = 0; bytes.size() < size; ++i) {
    const uint64_t word = Mix64(id.value * 1000 + part * 31 + i);
    bytes.append(reinterpret_cast<const char*>(&word), sizeof word);
  }
  bytes.resize(size);
  return bytes;
}

// Three latents of `latent_bytes` each; those over 1 KiB go into blob files.
inline Entry TestEntry(uint64_t id, uint64_t prompt, uint64_t birth, double reward,
                       size_t latent_bytes = 40) {
  Entry entry;
  entry.id = EntryId(id);
  entry.prompt = PromptId(prompt);
  entry.birth = LearnerStep(birth);
  entry.reward = reward;
  entry.header = TestBytes(entry.id, 100, 20);
  entry.conditioning = TestBytes(entry.id, 101, 10);
  entry.latent_count = 3;
  for (uint64_t i = 0; i < 3; ++i) entry.latents += TestBytes(entry.id, i, latent_bytes);
  return entry;
}

// The same as a message: float32 latents of shape [3, latent_bytes / 4].
inline v1::ReplayEntry TestMessage(uint64_t id, uint64_t prompt, uint64_t birth, double reward,
                                   size_t latent_bytes = 40) {
  v1::ReplayEntry entry;
  entry.set_entry_id(id);
  entry.mutable_prompt()->set_id(prompt);
  entry.mutable_prompt()->set_text("digits");
  entry.set_birth_step(birth);
  entry.set_raw_reward(reward);
  entry.add_sigmas(1);
  v1::Tensor& tokens = *entry.mutable_conditioning()->mutable_tokens();
  tokens.set_dtype(v1::DTYPE_U8);
  tokens.add_shape(5);
  tokens.set_data(TestBytes(EntryId(id), 101, 5));
  v1::Tensor& latents = *entry.mutable_trajectory()->mutable_latents();
  latents.set_dtype(v1::DTYPE_F32);
  latents.add_shape(3);
  latents.add_shape(static_cast<int64_t>(latent_bytes / 4));
  latents.set_data(TestEntry(id, prompt, birth, reward, latent_bytes).latents);
  return entry;
}

}  // namespace oxbow::buffer
