// For tests of the protocol: a runtime whose tokens the test says, one by one, where a real one decides for itself.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "engine/runtime.h"

namespace nmc::http {

// A request as the test plays the engine for it.
struct ScriptedRequest {
  engine::GenerateRequest request;
  std::shared_ptr<engine::RequestListener> listener;

  // Each token of the prompt but the first with a logprob of minus its position, at rank 2 behind `likeliest`.
  void tell_prompt(engine::TokenId likeliest) const {
    for (std::uint32_t i = 1; i < request.prompt.size(); ++i) {
      const float logprob = -static_cast<float>(i);
      const engine::PromptToken told{
          .position = i, .rank = 2, .logprobs = {{request.prompt[i], logprob}, {likeliest, logprob / 2}}};
      listener->on_prompt(std::span(&told, 1));
    }
  }
  // One token a byte.
  void say(std::string_view bytes) const {
    for (const char c : bytes) listener->on_token({static_cast<unsigned char>(c), {}});
  }
  void finish(engine::FinishReason reason, std::size_t computed_tokens = 0, std::optional<Error> error = {}) const {
    engine::Outcome outcome{.reason = reason, .error = std::move(error)};
    outcome.metrics.prompt_tokens = request.prompt.size();
    outcome.metrics.computed_tokens = computed_tokens;
    listener->on_finish(outcome);
  }
};

// Thread-safe. cancel() ends a request at once, on the caller's thread.
class ScriptedRuntime final : public engine::Runtime {
 public:
  ScriptedRuntime() { options_.eos_ids = {257}; }

  // The next request, within ten seconds; else one without a listener.
  ScriptedRequest next() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    MutexLock lock(mutex_);
    while (submitted_.empty()) {
      if (!changed_.wait_until(mutex_, deadline)) return {};
    }
    ScriptedRequest first = std::move(submitted_.front());
    submitted_.pop_front();
    return first;
  }
  std::size_t waiting() {
    MutexLock lock(mutex_);
    return submitted_.size();
  }
  bool is_cancelled_within_ten_seconds(const std::string& id) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    MutexLock lock(mutex_);
    while (live_.contains(id)) {
      if (!changed_.wait_until(mutex_, deadline)) return false;
    }
    return true;
  }
  // From now on; nullopt: takes them again.
  void refuse_after(std::size_t accepted, std::optional<Error> error) {
    MutexLock lock(mutex_);
    accepts_ = accepted;
    refusal_ = std::move(error);
  }

  Result<void> submit(engine::GenerateRequest request, std::shared_ptr<engine::RequestListener> listener) override {
    MutexLock lock(mutex_);
    if (refusal_ && accepts_ == 0) return Failure(*refusal_);
    if (refusal_) --accepts_;
    live_[request.id] = listener;
    submitted_.push_back({std::move(request), std::move(listener)});
    changed_.notify_all();
    return {};
  }
  void cancel(const std::string& id) override {
    std::shared_ptr<engine::RequestListener> listener;
    {
      MutexLock lock(mutex_);
      const auto it = live_.find(id);
      if (it == live_.end()) return;
      listener = std::move(it->second);
      live_.erase(it);
      ++cancelled_;
      changed_.notify_all();
    }
    listener->on_finish({.reason = engine::FinishReason::kCancelled});
  }
  bool drain(Nanos) override { return true; }
  engine::RuntimeStatus status() const override {
    MutexLock lock(mutex_);
    engine::RuntimeStatus status{.max_queue = options_.max_queue, .max_running = options_.max_running};
    status.counters.requests_cancelled = cancelled_;
    status.workers = {{.name = "worker-0", .role = "both", .state = "ready"}};
    return status;
  }
  const engine::RuntimeOptions& options() const override { return options_; }

 private:
  engine::RuntimeOptions options_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<ScriptedRequest> submitted_ NMC_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<engine::RequestListener>> live_ NMC_GUARDED_BY(mutex_);
  std::size_t accepts_ NMC_GUARDED_BY(mutex_) = 0;
  std::optional<Error> refusal_ NMC_GUARDED_BY(mutex_);
  std::uint64_t cancelled_ NMC_GUARDED_BY(mutex_) = 0;
};

}  // namespace nmc::http
