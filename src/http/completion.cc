#include "http/completion.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include "base/mutex.h"
#include "http/logprobs_format.h"
#include "http/status.h"
#include "http/stop_matcher.h"
#include "model/detokenizer.h"

namespace nmc::http {
namespace {

using engine::FinishReason;
using engine::Outcome;
using engine::TokenId;

// After so many bytes of a stream its connection gets to send them, and others on the thread get their turn: however
// much was sampled meanwhile, a client that reads is not taken for one that doesn't.
constexpr std::size_t kTurnBytes = 8192;

// A piece of an answer: text, and the token that it came with (whose text it need not be: characters and stop strings
// span tokens).
struct Piece {
  std::string text;
  std::optional<engine::SampledToken> token;
};

// One answer.
struct Choice {
  Choice(const model::Tokenizer& tokenizer, const CompletionRequest& request)
      : detokenizer(tokenizer, request.skip_special_tokens), stop(request.stop, request.include_stop) {}

  std::string engine_id;
  std::size_t max_tokens = 0;
  std::vector<TokenId> ending_ids;
  model::Detokenizer detokenizer;
  StopMatcher stop;
  Usage usage;
  bool is_first_of_prompt = true;
  std::string echo;                          // the prompt's text, until it was shown
  std::optional<Json> prompt_ids;            // where asked for, until they were shown
  std::string text;                          // of a whole answer
  std::vector<engine::SampledToken> tokens;  // of a whole answer, where asked for
  std::size_t text_offset = 0;               // characters of the tokens told
  std::vector<engine::SampledToken> echoed;  // the prompt's tokens, where they are told, until they were
  std::optional<Piece> withheld;             // the last token's, until it is known how the answer ends
  std::optional<TokenId> stop_id;            // of `stop_token_ids`, which ended it
  std::optional<Ending> ending;              // no more text comes
  bool finished = false;                     // the engine is done with it
  bool role_sent = false;
  Nanos submitted_at{0};
  std::optional<Nanos> last_token_at;
};

// A prompt whose own logprobs are wanted.
struct ToldPrompt {
  std::vector<TokenId> ids;
  std::vector<engine::PromptToken> tokens;  // from the second on, as far as they were heard
};

class Completion final : public std::enable_shared_from_this<Completion> {
 public:
  Completion(std::shared_ptr<ServerState> state, const CompletionRequest& request, CompletionFormat format,
             std::shared_ptr<net::HttpExchange> exchange)
      : state_(std::move(state)),
        stream_(request.stream),
        include_usage_(request.include_usage),
        continuous_usage_(request.continuous_usage),
        chat_(request.endpoint == Endpoint::kChat),
        echo_(request.echo),
        include_stop_(request.include_stop),
        return_token_ids_(request.return_token_ids),
        n_(request.sampling.n),
        logprobs_(request.sampling.logprobs),
        prompt_logprobs_(request.sampling.prompt_logprobs),
        stop_ids_(request.sampling.stop_ids),
        format_(std::move(format)),
        exchange_(std::move(exchange)) {}

  void start(const CompletionRequest& asked, std::vector<engine::GenerateRequest> requests) {
    for (const engine::GenerateRequest& request : requests) {
      Choice& choice = choices_.emplace_back(*state_->model.tokenizer, asked);
      choice.is_first_of_prompt = (choices_.size() - 1) % n_ == 0;
      if (asked.echo) choice.echo = prompt_text(asked, (choices_.size() - 1) / n_, request.prompt);
      if (request.prompt_logprobs) told_prompts_.push_back({.ids = request.prompt, .tokens = {}});
      if (asked.return_token_ids) choice.prompt_ids = Json(request.prompt);
      choice.engine_id = request.id;
      choice.max_tokens = request.max_tokens;
      choice.ending_ids = engine::ending_ids(request, state_->eos_ids);
      choice.usage.prompt_tokens = request.prompt.size();
    }
    exchange_->on_closed([self = shared_from_this()] { self->give_up(); });
    requests_ = std::move(requests);
    for (std::size_t i = 0; i < requests_.size() && !over_; i += n_) submit(i);
    if (over_ || !stream_) return;
    exchange_->begin_stream({.content_type = "text/event-stream; charset=utf-8",
                             .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
                             .heartbeat = ": keep-alive\n\n"});
    streaming_ = true;
  }

 private:
  struct Event {
    std::size_t choice;
    Nanos at;
    std::variant<std::vector<engine::PromptToken>, engine::SampledToken, Outcome> what;
  };

  class Listener final : public engine::RequestListener {
   public:
    Listener(std::shared_ptr<Completion> completion, std::size_t choice)
        : completion_(std::move(completion)), choice_(choice) {}
    void on_prompt(std::span<const engine::PromptToken> tokens) override {
      completion_->hear({choice_, Nanos{0}, std::vector<engine::PromptToken>(tokens.begin(), tokens.end())});
    }
    void on_token(const engine::SampledToken& token) override {
      completion_->hear({choice_, completion_->state_->clock().now(), token});
    }
    void on_finish(const Outcome& outcome) override {
      completion_->hear({choice_, completion_->state_->clock().now(), outcome});
    }

   private:
    std::shared_ptr<Completion> completion_;
    std::size_t choice_;
  };

  // As it was given, or as its tokens have it.
  std::string prompt_text(const CompletionRequest& asked, std::size_t prompt, std::span<const TokenId> ids) const {
    const auto* text = std::get_if<std::string>(&asked.prompts[prompt]);
    if (text != nullptr && !asked.truncate_prompt_tokens) return *text;
    return state_->model.tokenizer->decode(ids, asked.skip_special_tokens);
  }

  void submit(std::size_t index) {
    const Nanos now = choices_[index].submitted_at = state_->clock().now();
    // Of this one: those that wait for the first to their prompt don't wait in the queue.
    if (state_->options.queue_timeout > Nanos{0}) requests_[index].queue_deadline = now + state_->options.queue_timeout;
    auto submitted =
        state_->runtime.submit(std::move(requests_[index]), std::make_shared<Listener>(shared_from_this(), index));
    if (!submitted) fail(to_api_error(std::move(submitted).error()));
  }

  // The first answer's prompt is computed: the others to it start from its blocks and logits, where KV is reused.
  void submit_others(std::size_t first) {
    for (std::size_t i = first + 1; i < first + n_ && !over_; ++i) submit(i);
  }

  // On an engine thread.
  void hear(Event event) NMC_EXCLUDES(mutex_) {
    if (deaf_.load(std::memory_order_relaxed)) return;
    bool first;
    {
      MutexLock lock(mutex_);
      first = inbox_.empty();
      inbox_.push_back(std::move(event));
    }
    if (first) exchange_->post([self = shared_from_this()] { self->read_inbox(); });
  }

  // All that follows runs on the connection's I/O thread.

  void read_inbox() NMC_EXCLUDES(mutex_) {
    std::vector<Event> events;
    {
      MutexLock lock(mutex_);
      events.swap(inbox_);
    }
    std::ranges::move(events, std::back_inserter(backlog_));
    written_ = 0;
    for (; !backlog_.empty() && written_ < kTurnBytes; backlog_.pop_front()) {
      if (over_) return;
      Event& event = backlog_.front();
      Choice& choice = choices_[event.choice];
      const std::size_t index = event.choice;
      if (auto* prompt = std::get_if<std::vector<engine::PromptToken>>(&event.what)) {
        std::ranges::move(*prompt, std::back_inserter(told_prompts_[index / n_].tokens));
      } else if (auto* token = std::get_if<engine::SampledToken>(&event.what)) {
        on_token(index, choice, std::move(*token), event.at);
      } else {
        on_finish(index, choice, std::get<Outcome>(event.what));
      }
    }
    if (!backlog_.empty()) exchange_->post([self = shared_from_this()] { self->read_inbox(); });
  }

  void on_token(std::size_t index, Choice& choice, engine::SampledToken token, Nanos at) {
    if (choice.is_first_of_prompt && choice.usage.completion_tokens == 0) {
      submit_others(index);
      if (over_) return;
    }
    if (choice.ending) return;  // sampled before the cancellation arrived
    if (choice.usage.completion_tokens == 0 && echo_ && logprobs_) {
      const ToldPrompt& prompt = told_prompts_[index / n_];
      choice.echoed = echoed_tokens(prompt.ids, prompt.tokens, *logprobs_);
    }
    count_token(choice, at);
    release_withheld(index, choice);

    ++choice.usage.completion_tokens;
    const bool ends = std::ranges::find(choice.ending_ids, token.id) != choice.ending_ids.end();
    const bool shown = !ends || include_stop_;
    const TokenId id = token.id;
    Piece piece{shown ? choice.stop.push(choice.detokenizer.push(id)) : std::string(), std::nullopt};
    if (logprobs_ || return_token_ids_) piece.token = std::move(token);
    if (choice.stop.stopped()) {
      choice.ending = Ending{"stop", choice.stop.matched()};
      emit(index, choice, piece, &*choice.ending);
      state_->runtime.cancel(choice.engine_id);
    } else if (ends || choice.usage.completion_tokens == choice.max_tokens) {
      choice.withheld = std::move(piece);  // on_finish() follows and says how to end its chunk
      if (std::ranges::find(stop_ids_, id) != stop_ids_.end()) choice.stop_id = id;
    } else {
      emit(index, choice, piece, nullptr);
    }
  }

  void count_token(Choice& choice, Nanos at) {
    if (choice.last_token_at) {
      const double gap_ms = to_ms(at - *choice.last_token_at);
      state_->latencies.add_token_gap(gap_ms);
      state_->histograms.add_token_gap(gap_ms);
    } else {
      state_->histograms.add_first_token(to_ms(at - choice.submitted_at));
    }
    choice.last_token_at = at;
  }

  void on_finish(std::size_t index, Choice& choice, const Outcome& outcome) {
    const bool cancelled = outcome.reason == FinishReason::kCancelled;
    if (!choice.ending && (outcome.error || cancelled || outcome.reason == FinishReason::kFailed)) {
      return fail(why(outcome));
    }
    const engine::RequestMetrics& metrics = outcome.metrics;
    state_->latencies.add_request(metrics);
    state_->histograms.add_answer(metrics, choice.max_tokens);
    if (choice.ending && cancelled) state_->ended_by_stop_string.fetch_add(1, std::memory_order_relaxed);
    // Prefill after a preemption may compute a prompt twice.
    choice.usage.cached_tokens = metrics.prompt_tokens - std::min(metrics.prompt_tokens, metrics.computed_tokens);
    choice.finished = true;
    if (!choice.ending) end_text(index, choice, outcome.reason);
    (std::string_view(choice.ending->reason) == "length" ? state_->ended_by_length : state_->ended_by_stop)
        .fetch_add(1, std::memory_order_relaxed);
    if (std::ranges::all_of(choices_, &Choice::finished)) complete();
  }

  void end_text(std::size_t index, Choice& choice, FinishReason reason) {
    Piece piece = std::exchange(choice.withheld, std::nullopt).value_or(Piece{});
    piece.text += choice.stop.push(choice.detokenizer.flush());
    choice.ending = Ending{reason == FinishReason::kLength ? "length" : "stop", nullptr};
    if (choice.stop_id) choice.ending->stop_reason = *choice.stop_id;
    if (choice.stop.stopped()) {
      choice.ending = Ending{"stop", choice.stop.matched()};
    } else {
      piece.text += choice.stop.flush();
    }
    emit(index, choice, piece, &*choice.ending);
  }

  void release_withheld(std::size_t index, Choice& choice) {
    if (!choice.withheld) return;
    emit(index, choice, *choice.withheld, nullptr);
    choice.withheld.reset();
  }

  void emit(std::size_t index, Choice& choice, const Piece& piece, const Ending* ending) {
    const std::string text = std::exchange(choice.echo, {}) + piece.text;
    if (!stream_) {
      choice.text += text;
      if (piece.token) choice.tokens.push_back(*piece.token);
      return;
    }
    Json usage;  // null
    if (continuous_usage_) usage = CompletionFormat::usage_json(choice.usage);
    ChunkedChoice chunk{.index = index, .usage = include_usage_ ? &usage : nullptr};
    chunk.prompt_token_ids = std::exchange(choice.prompt_ids, std::nullopt);
    // With the first token rather than ahead of it: clients take the first chunk for it.
    if (chat_ && !std::exchange(choice.role_sent, true)) {
      write(format_.role_event(chunk));
      chunk.prompt_token_ids.reset();
    }
    const auto tokens = piece.token ? std::span(&*piece.token, 1) : std::span<const engine::SampledToken>();
    chunk.text = text;
    chunk.ending = ending;
    chunk.token_ids = ids_json(tokens);
    if (!tokens.empty()) chunk.logprobs = logprobs_json(choice, tokens);
    write(format_.text_event(std::move(chunk)));
  }

  std::optional<Json> ids_json(std::span<const engine::SampledToken> tokens) const {
    if (!return_token_ids_) return std::nullopt;
    Json ids = Json::array();
    for (const engine::SampledToken& token : tokens) ids.push_back(token.id);
    return ids;
  }

  std::optional<Json> prompt_json(std::size_t prompt) const {
    if (!prompt_logprobs_) return std::nullopt;
    const ToldPrompt& told = told_prompts_[prompt];
    return prompt_logprobs(*state_->model.tokenizer, told.tokens, *prompt_logprobs_);
  }

  void write(const std::string& event) {
    written_ += event.size();
    exchange_->write(event);
  }

  // null where they weren't asked for
  Json logprobs_json(Choice& choice, std::span<const engine::SampledToken> tokens) const {
    if (!logprobs_) return nullptr;
    const model::Tokenizer& tokenizer = *state_->model.tokenizer;
    if (chat_) return chat_logprobs(tokenizer, tokens);
    std::vector<engine::SampledToken> told = std::exchange(choice.echoed, {});
    told.insert(told.end(), tokens.begin(), tokens.end());
    return completions_logprobs(tokenizer, told, choice.text_offset);
  }

  void complete() {
    over_ = true;
    for (std::size_t first = 0; first < choices_.size(); first += n_) {
      std::size_t longest = 0;
      for (std::size_t i = first; i < first + n_; ++i) longest = std::max(longest, choices_[i].usage.completion_tokens);
      state_->histograms.add_prompt(n_, longest);
    }
    Usage total;
    for (const Choice& choice : choices_) {
      Usage counted = choice.usage;
      if (!choice.is_first_of_prompt) counted.prompt_tokens = counted.cached_tokens = 0;  // a prompt is sent once
      total += counted;
    }
    if (stream_) {
      if (include_usage_) exchange_->write(format_.usage_event(total));
      exchange_->write(kDoneEvent);
      exchange_->finish();
      return;
    }
    std::vector<FinishedChoice> finished;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      Choice& choice = choices_[i];
      finished.push_back({.text = std::move(choice.text),
                          .logprobs = logprobs_json(choice, choice.tokens),
                          .ending = *choice.ending,
                          .token_ids = ids_json(choice.tokens),
                          .prompt_token_ids = std::move(choice.prompt_ids),
                          .prompt_logprobs = prompt_json(i / n_)});
    }
    exchange_->respond({.body = format_.whole(finished, total)});
  }

  static ApiError why(const Outcome& outcome) {
    if (outcome.error) return to_api_error(*outcome.error);
    if (outcome.reason == FinishReason::kCancelled)
      return {503, "the server is shutting down and gave this request up", ""};
    return {500, "the engine failed without a reason", ""};
  }

  void fail(const ApiError& error) {
    give_up();
    if (streaming_) {
      exchange_->write(fmt::format("data: {}\n\n", error_json(error)));
      exchange_->finish(net::HttpExchange::After::kClose);
    } else {
      exchange_->respond(error_response(error));
    }
  }

  // Nobody waits for this any more.
  void give_up() {
    if (std::exchange(over_, true)) return;
    deaf_.store(true, std::memory_order_relaxed);
    for (const Choice& choice : choices_) {
      if (!choice.finished) state_->runtime.cancel(choice.engine_id);
    }
  }

  const std::shared_ptr<ServerState> state_;
  const bool stream_, include_usage_, continuous_usage_, chat_, echo_, include_stop_, return_token_ids_;
  const std::size_t n_;                                            // answers to each prompt
  const std::optional<std::uint32_t> logprobs_, prompt_logprobs_;  // of how many of the likeliest
  const std::vector<TokenId> stop_ids_;
  const CompletionFormat format_;
  const std::shared_ptr<net::HttpExchange> exchange_;

  // Touched by the connection's I/O thread only.
  std::vector<Choice> choices_;
  std::vector<engine::GenerateRequest> requests_;  // of the choices; those that wait for the first to their prompt
  std::vector<ToldPrompt> told_prompts_;           // all, where anything of them is told
  bool streaming_ = false;                         // the head is sent
  bool over_ = false;                              // answered, failed or given up
  std::deque<Event> backlog_;                      // heard, not handled
  std::size_t written_ = 0;                        // bytes of this turn

  std::atomic<bool> deaf_{false};
  Mutex mutex_;
  std::vector<Event> inbox_ NMC_GUARDED_BY(mutex_);
};

}  // namespace

void start_completion(std::shared_ptr<ServerState> state, const CompletionRequest& request,
                      std::vector<engine::GenerateRequest> engine_requests, CompletionFormat format,
                      std::shared_ptr<net::HttpExchange> exchange) {
  std::make_shared<Completion>(std::move(state), request, std::move(format), std::move(exchange))
      ->start(request, std::move(engine_requests));
}

}  // namespace nmc::http
