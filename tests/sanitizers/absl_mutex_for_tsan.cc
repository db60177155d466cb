// SPDX-License-Identifier: Apache-2.0
// Tells the thread sanitizer what absl::Mutex and absl::CondVar do.
//
// The system's Abseil is a shared library built without the sanitizer. The sanitizer therefore sees
// neither its locks nor the order that they create, and reports every guarded field as a race. An
// executable that links this file uses these definitions instead of the library's; each of them
// calls the library's and reports the event to the sanitizer. Between a pre_ and a post_ call the
// sanitizer ignores accesses, so that conditions, which one thread evaluates for another, are not
// reported as races either.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

#include "absl/synchronization/mutex.h"

using absl::Condition;
using absl::CondVar;
using absl::Duration;
using absl::Mutex;
using absl::Time;

namespace {

#define OXBOW_TEXT_OF(name) #name
#define OXBOW_TEXT(name) OXBOW_TEXT_OF(name)
#if ABSL_OPTION_USE_INLINE_NAMESPACE
constexpr char kNamespace[] = OXBOW_TEXT(ABSL_OPTION_INLINE_NAMESPACE_NAME);
#else
constexpr char kNamespace[] = "";
#endif

// The library's own definition of absl::`mangled`, which starts with the class.
template <typename Function>
Function* Real(const char* mangled) {
  const std::string space(kNamespace);
  const std::string symbol =
      "_ZN4absl" + (space.empty() ? space : std::to_string(space.size()) + space) + mangled;
  void* const found = dlsym(RTLD_NEXT, symbol.c_str());
  if (found == nullptr) {
    std::fprintf(stderr, "no %s in the libraries\n", symbol.c_str());
    std::abort();
  }
  return reinterpret_cast<Function*>(found);
}

// Some of the library's functions call others; only the outermost reports to the sanitizer.
thread_local int depth = 0;

class Saying {
 public:
  Saying() : outermost_(depth++ == 0) {}
  ~Saying() { --depth; }
  explicit operator bool() const { return outermost_; }

 private:
  const bool outermost_;
};

// `take` locks the mutex and returns whether it is then held.
template <typename Take>
bool Taking(Mutex* mutex, unsigned flags, Take take) {
  const Saying say;
  if (say) __tsan_mutex_pre_lock(mutex, flags);
  const bool held = take();
  if (say) __tsan_mutex_post_lock(mutex, held ? flags : flags | __tsan_mutex_try_lock_failed, 0);
  return held;
}

template <typename Give>
void Giving(Mutex* mutex, unsigned flags, Give give) {
  const Saying say;
  if (say) __tsan_mutex_pre_unlock(mutex, flags);
  give();
  if (say) __tsan_mutex_post_unlock(mutex, flags);
}

// A wait releases the mutex and locks it again, whatever it returns.
template <typename Wait>
bool GivingAndTaking(Mutex* mutex, Wait wait) {
  bool result = true;
  const Saying say;
  if (say) {
    __tsan_mutex_pre_unlock(mutex, 0);
    __tsan_mutex_post_unlock(mutex, 0);
    __tsan_mutex_pre_lock(mutex, 0);
  }
  if constexpr (std::is_void_v<decltype(wait())>) {
    wait();
  } else {
    result = wait();
  }
  if (say) __tsan_mutex_post_lock(mutex, 0, 0);
  return result;
}

constexpr unsigned kReader = __tsan_mutex_read_lock;

}  // namespace

Mutex::~Mutex() {
  static const auto real = Real<void(Mutex*)>("5MutexD1Ev");
  real(this);
  __tsan_mutex_destroy(this, __tsan_mutex_not_static);
}

void Mutex::Lock() {
  static const auto real = Real<void(Mutex*)>("5Mutex4LockEv");
  Taking(this, 0, [&] { return real(this), true; });
}

void Mutex::Unlock() {
  static const auto real = Real<void(Mutex*)>("5Mutex6UnlockEv");
  Giving(this, 0, [&] { real(this); });
}

bool Mutex::TryLock() {
  static const auto real = Real<bool(Mutex*)>("5Mutex7TryLockEv");
  return Taking(this, __tsan_mutex_try_lock, [&] { return real(this); });
}

void Mutex::ReaderLock() {
  static const auto real = Real<void(Mutex*)>("5Mutex10ReaderLockEv");
  Taking(this, kReader, [&] { return real(this), true; });
}

void Mutex::ReaderUnlock() {
  static const auto real = Real<void(Mutex*)>("5Mutex12ReaderUnlockEv");
  Giving(this, kReader, [&] { real(this); });
}

bool Mutex::ReaderTryLock() {
  static const auto real = Real<bool(Mutex*)>("5Mutex13ReaderTryLockEv");
  return Taking(this, kReader | __tsan_mutex_try_lock, [&] { return real(this); });
}

void Mutex::LockWhen(const Condition& condition) {
  static const auto real =
      Real<void(Mutex*, const Condition&)>("5Mutex8LockWhenERKNS0_9ConditionE");
  Taking(this, 0, [&] { return real(this, condition), true; });
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  static const auto real = Real<bool(Mutex*, const Condition&, Duration)>(
      "5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  bool result = false;  // The mutex is held in both cases.
  Taking(this, 0, [&] { return result = real(this, condition, timeout), true; });
  return result;
}

void Mutex::Await(const Condition& condition) {
  static const auto real = Real<void(Mutex*, const Condition&)>("5Mutex5AwaitERKNS0_9ConditionE");
  GivingAndTaking(this, [&] { real(this, condition); });
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static const auto real = Real<bool(Mutex*, const Condition&, Duration)>(
      "5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE");
  return GivingAndTaking(this, [&] { return real(this, condition, timeout); });
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static const auto real = Real<bool(Mutex*, const Condition&, Time)>(
      "5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE");
  return GivingAndTaking(this, [&] { return real(this, condition, deadline); });
}

void CondVar::Wait(Mutex* mutex) {
  static const auto real = Real<void(CondVar*, Mutex*)>("7CondVar4WaitEPNS0_5MutexE");
  GivingAndTaking(mutex, [&] { real(this, mutex); });
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto real = Real<bool(CondVar*, Mutex*, Duration)>(
      "7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE");
  return GivingAndTaking(mutex, [&] { return real(this, mutex, timeout); });
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto real =
      Real<bool(CondVar*, Mutex*, Time)>("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE");
  return GivingAndTaking(mutex, [&] { return real(this, mutex, deadline); });
}
