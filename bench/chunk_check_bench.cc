// SPDX-License-Identifier: Apache-2.0
// The time that a worker takes to check one chunk of weights (1 MiB), by the kind of check.
// For docs/lab/scale.md, the medians of
//
//   chunk_check_bench --benchmark_repetitions=15 --benchmark_report_aggregates_only=true
#include <benchmark/benchmark.h>
#include <openssl/evp.h>

#include <random>
#include <string>

#include "base/check.h"
#include "base/checksum.h"
#include "base/sha256.h"
#include "services/weights/snapshot.h"

namespace oxbow::weights {
namespace {

std::string RandomChunk() {
  std::mt19937_64 random(7);
  std::string chunk(kSnapshotChunkBytes, '\0');
  for (char& byte : chunk) byte = static_cast<char>(random());
  return chunk;
}

void Report(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kSnapshotChunkBytes));
}

void BM_Xxh3(benchmark::State& state) {
  const std::string chunk = RandomChunk();
  for (auto _ : state) benchmark::DoNotOptimize(Checksum128(chunk));
  Report(state);
}
BENCHMARK(BM_Xxh3);

void BM_Sha256(benchmark::State& state) {
  const std::string chunk = RandomChunk();
  for (auto _ : state) benchmark::DoNotOptimize(Sha256(chunk));
  Report(state);
}
BENCHMARK(BM_Sha256);

// A digest of OpenSSL's by its name.
void BM_Digest(benchmark::State& state, const char* name) {
  const std::string chunk = RandomChunk();
  EVP_MD* digest = EVP_MD_fetch(nullptr, name, nullptr);
  OXBOW_CHECK(digest != nullptr) << name;
  unsigned char out[EVP_MAX_MD_SIZE];
  for (auto _ : state) {
    OXBOW_CHECK(EVP_Digest(chunk.data(), chunk.size(), out, nullptr, digest, nullptr) == 1);
    benchmark::DoNotOptimize(out);
  }
  EVP_MD_free(digest);
  Report(state);
}
BENCHMARK_CAPTURE(BM_Digest, blake2b512, "BLAKE2B-512");
BENCHMARK_CAPTURE(BM_Digest, blake2s256, "BLAKE2S-256");
BENCHMARK_CAPTURE(BM_Digest, sha512_256, "SHA512-256");

}  // namespace
}  // namespace oxbow::weights

BENCHMARK_MAIN();
