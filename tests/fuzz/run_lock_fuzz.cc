// SPDX-License-Identifier: Apache-2.0
// For any bytes in a lock file: the lock is taken and held, or refused in one line. The first byte
// says whether the file system has locks.
#include <cerrno>

#include "base/check.h"
#include "run/run_lock.h"
#include "tests/fuzz/bytes_input.h"
#include "tests/fuzz/scratch.h"

namespace {

int NoLocks(int, int) {
  errno = ENOTSUP;
  return -1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace oxbow;  // NOLINT: a file of one function.
  if (size == 0) return 0;
  static const fuzz::Scratch scratch;
  scratch.Write("LOCK", fuzz::Text(data + 1, size - 1));
  run::RunLock::Options options{.program = "fuzz"};
  if (data[0] % 2 == 1) options.lock = NoLocks;
  const auto lock = run::RunLock::Take(scratch.path(), options);
  if (lock.ok()) {
    OXBOW_CHECK(lock->CheckHeld().ok()) << lock->CheckHeld().ToString();
  } else {
    OXBOW_CHECK(data[0] % 2 == 1) << lock.status().ToString();
    OXBOW_CHECK(lock.status().message().find('\n') == std::string_view::npos);
  }
  return 0;
}
