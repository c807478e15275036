// From the text of a pattern to instructions, by way of a tree.
#include <algorithm>
#include <memory>
#include <unordered_map>

#include "model/regex.h"
#include "model/unicode.h"

namespace nmc::model {
namespace {

constexpr std::size_t kPatternBytesMax = 64 << 10;
constexpr std::size_t kProgramMax = 20'000;  // instructions
constexpr std::uint32_t kCountMax = 1'000;   // in {n,m}
constexpr int kDepthMax = 50;

enum class Kind : std::uint8_t { kEmpty, kChar, kSet, kSequence, kChoice, kRepeat, kAhead, kAtomic, kPlace };
enum class Greed : std::uint8_t { kGreedy, kLazy, kPossessive };

struct Node {
  Kind kind = Kind::kEmpty;
  char32_t code = 0;  // kChar
  CharSet set;        // kSet
  std::vector<std::unique_ptr<Node>> children;
  std::uint32_t low = 0;  // kRepeat; kAhead: 1 = must match, 0 = must not
  std::uint32_t high = 0;
  Greed greed = Greed::kGreedy;
  Regex::Op place = Regex::Op::kLineStart;  // kPlace
};
using Tree = std::unique_ptr<Node>;

Tree make_node(Kind kind) {
  auto node = std::make_unique<Node>();
  node->kind = kind;
  return node;
}

Tree with_child(Kind kind, Tree child) {
  Tree node = make_node(kind);
  node->children.push_back(std::move(child));
  return node;
}

// ---- Parsing

class Parser {
 public:
  explicit Parser(std::string_view pattern) : pattern_(pattern) {}

  Result<Tree> parse() {
    if (pattern_.size() > kPatternBytesMax) return unsupported("a pattern of {} bytes", pattern_.size());
    NMC_ASSIGN_OR_RETURN(Tree tree, choice(0));
    if (!done()) return wrong("`)` without `(`");
    return tree;
  }

 private:
  bool done() const { return at_ == pattern_.size(); }
  bool sees(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!sees(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_char() {
    const Utf8Char next = utf8_char_at(pattern_, at_);
    at_ += next.bytes;
    return next.code;
  }
  Failure wrong(std::string_view what) const { return invalid_argument("{} at byte {} of the pattern", what, at_); }
  Failure not_done(std::string_view what) const {
    return unsupported("{} at byte {} of the pattern isn't supported", what, at_);
  }

  Result<Tree> choice(int depth) {
    if (depth > kDepthMax) return not_done("nesting this deep");
    Tree node = make_node(Kind::kChoice);
    do {
      NMC_ASSIGN_OR_RETURN(Tree branch, sequence(depth));
      node->children.push_back(std::move(branch));
    } while (take("|"));
    if (node->children.size() == 1) return std::move(node->children.front());
    return node;
  }

  Result<Tree> sequence(int depth) {
    Tree node = make_node(Kind::kSequence);
    while (!done() && !sees("|") && !sees(")")) {
      NMC_ASSIGN_OR_RETURN(Tree item, repeated(depth));
      // Ignoring case, some pairs of letters are one character elsewhere, such as "ss".
      if (ignore_case_ && !node->children.empty() && is_pair(*node->children.back(), *item)) {
        return not_done("two letters that fold to one, ignoring case,");
      }
      node->children.push_back(std::move(item));
    }
    return node;
  }

  static bool is_pair(const Node& left, const Node& right) {
    if (left.kind != Kind::kSet || right.kind != Kind::kSet) return false;
    static constexpr std::string_view kPairs[] = {"ss", "ff", "fi", "fl", "st"};
    return std::ranges::any_of(kPairs, [&](std::string_view pair) {
      return left.set.contains(static_cast<unsigned char>(pair[0])) &&
             right.set.contains(static_cast<unsigned char>(pair[1]));
    });
  }

  Result<Tree> repeated(int depth) {
    NMC_ASSIGN_OR_RETURN(Tree node, atom(depth));
    for (int times = 0; !done(); ++times) {
      std::uint32_t low = 0;
      std::uint32_t high = Regex::kUnbounded;
      const std::size_t before = at_;
      bool is_interval = false;
      if (take("?")) {
        high = 1;
      } else if (take("+")) {
        low = 1;
      } else if (!take("*")) {
        NMC_ASSIGN_OR_RETURN(is_interval, interval(low, high));
        if (!is_interval) break;
      }
      if (times > 8) return not_done("repetition of a repetition of ...");
      if (node->kind == Kind::kPlace || node->kind == Kind::kAhead) {
        at_ = before;
        return not_done("repetition of what takes no text");
      }
      Tree repeat = with_child(Kind::kRepeat, std::move(node));
      repeat->low = low;
      repeat->high = high;
      if (take("?")) {
        // {n}? is {n,n}? elsewhere, and an optional {n} here and there.
        if (is_interval && low == high) return not_done("`?` after {n}");
        repeat->greed = Greed::kLazy;
      } else if (!is_interval && take("+")) {
        repeat->greed = Greed::kPossessive;  // after an interval `+` repeats it
      }
      node = std::move(repeat);
    }
    return node;
  }

  // {n}, {n,}, {,m} or {n,m}.
  Result<bool> interval(std::uint32_t& low, std::uint32_t& high) {
    if (!sees("{")) return false;
    const std::size_t close = pattern_.find('}', at_);
    if (close == pattern_.npos) return wrong("`{` without `}`");
    const std::string_view inside = pattern_.substr(at_ + 1, close - at_ - 1);
    const std::size_t comma = inside.find(',');
    const std::string_view first = inside.substr(0, comma);
    const std::string_view second = comma == inside.npos ? first : inside.substr(comma + 1);
    if (first.empty() && second.empty()) return not_done("`{` that opens no count");
    if (!read_count(first, 0, low) || !read_count(second, Regex::kUnbounded, high)) {
      return not_done("`{` that opens no count up to 1000");
    }
    if (low > high) return not_done("{n,m} with n beyond m");
    at_ = close + 1;
    return true;
  }

  static bool read_count(std::string_view digits, std::uint32_t absent, std::uint32_t& count) {
    count = absent;
    if (digits.empty()) return true;
    count = 0;
    for (const char digit : digits) {
      if (digit < '0' || digit > '9') return false;
      count = count * 10 + static_cast<std::uint32_t>(digit - '0');
      if (count > kCountMax) return false;
    }
    return true;
  }

  Result<Tree> atom(int depth) {
    if (sees("(")) return group(depth);
    if (sees("[")) {
      CharSet set;
      NMC_RETURN_IF_ERROR(bracket(set));
      return set_node(std::move(set));
    }
    if (take(".")) {
      CharSet set;
      set.add('\n', '\n');
      set.finish(true, false);
      return set_node(std::move(set));
    }
    if (take("^")) return place(Regex::Op::kLineStart);
    if (take("$")) return place(Regex::Op::kLineEnd);
    if (sees("*") || sees("+") || sees("?")) return wrong("nothing to repeat");
    if (take("\\A")) return place(Regex::Op::kTextStart);
    if (take("\\z")) return place(Regex::Op::kTextEnd);
    CharSet set;
    NMC_ASSIGN_OR_RETURN(const std::optional<char32_t> code, character(set));
    if (!code) {
      set.finish(false, false);
      return set_node(std::move(set));
    }
    return literal(*code);
  }

  Result<Tree> literal(char32_t code) {
    const char32_t folded = fold_to_ascii(code);
    if (!ignore_case_ || (code < 128 && !(folded >= 'a' && folded <= 'z'))) {
      Tree node = make_node(Kind::kChar);
      node->code = code;
      return node;
    }
    if (code >= 128) return not_done("ignoring the case of letters beyond ASCII");
    CharSet set;
    set.add(folded, folded);
    set.finish(false, true);
    return set_node(std::move(set));
  }

  static Result<Tree> set_node(CharSet set) {
    Tree node = make_node(Kind::kSet);
    node->set = std::move(set);
    return node;
  }

  static Result<Tree> place(Regex::Op op) {
    Tree node = make_node(Kind::kPlace);
    node->place = op;
    return node;
  }

  Result<Tree> group(int depth) {
    const bool outer = ignore_case_;
    Kind kind = Kind::kSequence;
    std::uint32_t must_match = 1;
    if (take("(?=")) {
      kind = Kind::kAhead;
    } else if (take("(?!")) {
      kind = Kind::kAhead;
      must_match = 0;
    } else if (take("(?>")) {
      kind = Kind::kAtomic;
    } else if (take("(?i:")) {
      ignore_case_ = true;
    } else if (take("(?i)")) {
      ignore_case_ = true;  // for the rest of the group around it, alternatives included
      return choice(depth + 1);
    } else if (!take("(?:")) {
      if (sees("(?") || sees("(*")) return not_done("this kind of group");
      take("(");
    }
    NMC_ASSIGN_OR_RETURN(Tree inside, choice(depth + 1));
    ignore_case_ = outer;
    if (!take(")")) return wrong("`(` without `)`");
    Tree node = with_child(kind, std::move(inside));
    node->low = must_match;
    return node;
  }

  // [...]; at_ is at the bracket.
  Result<void> bracket(CharSet& set) {
    take("[");
    const bool negated = take("^");
    bool is_first = true;
    for (;; is_first = false) {
      if (done()) return wrong("`[` without `]`");
      if (sees("]") && !is_first) break;
      if (sees("[") || sees("&&") || (is_first && sees("]"))) return not_done("a set inside of a set");
      NMC_ASSIGN_OR_RETURN(const std::optional<char32_t> first, character(set));
      if (!first) continue;
      if (!sees("-") || sees("-]")) {
        set.add(*first, *first);
        continue;
      }
      take("-");
      if (done() || sees("[")) return not_done("`-` before this");
      NMC_ASSIGN_OR_RETURN(const std::optional<char32_t> last, character(set));
      if (!last) return not_done("a range up to a class");
      if (*last < *first) return wrong("an empty range");
      set.add(*first, *last);
    }
    take("]");
    set.finish(negated, ignore_case_);
    return {};
  }

  // A character as such or escaped; or a class, added to `set`, and nothing.
  Result<std::optional<char32_t>> character(CharSet& set) {
    if (!take("\\")) return std::optional(take_char());
    if (done()) return wrong("`\\` at the end");
    const std::size_t before = at_;
    const char32_t escaped = take_char();
    switch (escaped) {
      case 'n': return std::optional<char32_t>('\n');
      case 'r': return std::optional<char32_t>('\r');
      case 't': return std::optional<char32_t>('\t');
      case 'f': return std::optional<char32_t>('\f');
      case 'v': return std::optional<char32_t>('\v');
      case 'x':
      case 'u': return hexadecimal(escaped == 'u' ? 4 : 2);
      case 's':
      case 'S': set.add_space(escaped == 's'); return std::optional<char32_t>();
      case 'w':
      case 'W': set.add_word(escaped == 'w'); return std::optional<char32_t>();
      case 'd':
      case 'D':
        set.add_categories(*categories_named("Nd") ^ (escaped == 'd' ? 0 : kAllCategories));
        return std::optional<char32_t>();
      case 'p':
      case 'P': return property(set, escaped == 'P');
      default: break;
    }
    const bool is_word = escaped >= 128 || (char_classes(escaped) & kWord) != 0;
    if (!is_word) return std::optional(escaped);
    at_ = before - 1;
    return not_done("this escape");
  }

  // \p{L}, \P{L} or \p{^L}; at_ is behind the p.
  Result<std::optional<char32_t>> property(CharSet& set, bool negated) {
    const std::size_t close = pattern_.find('}', at_);
    if (!sees("{") || close == pattern_.npos) return wrong("`\\p` without {...}");
    std::string_view name = pattern_.substr(at_ + 1, close - at_ - 1);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    const std::optional<std::uint32_t> categories = categories_named(name);
    if (!categories) return not_done("this property");
    set.add_categories(negated ? *categories ^ kAllCategories : *categories);
    at_ = close + 1;
    return std::optional<char32_t>();
  }

  // XX, XXXX or {X...}.
  Result<std::optional<char32_t>> hexadecimal(std::size_t digits) {
    std::size_t begin = at_;
    std::size_t end = at_ + digits;
    if (sees("{")) {
      begin = at_ + 1;
      end = pattern_.find('}', at_);
    }
    if (end == pattern_.npos || end > pattern_.size() || end == begin || end - begin > 6) return wrong("a bad escape");
    char32_t code = 0;
    for (const char digit : pattern_.substr(begin, end - begin)) {
      const std::size_t value = std::string_view("0123456789abcdef").find(static_cast<char>(digit | 0x20));
      if (value == std::string_view::npos) return wrong("a bad escape");
      code = code * 16 + static_cast<char32_t>(value);
    }
    const bool is_raw_byte = digits == 2 && begin == at_ && code >= 0x80;  // there a byte, not a character
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) || is_raw_byte) return not_done("this escape");
    at_ = begin == at_ ? end : end + 1;
    return std::optional(code);
  }

  static constexpr std::uint32_t kAllCategories = (1u << kCategoryNames.size()) - 1;

  std::string_view pattern_;
  std::size_t at_ = 0;
  bool ignore_case_ = false;
};

// ---- Emitting

bool can_be_empty(const Node& node) {
  const auto child = [](const Tree& tree) { return can_be_empty(*tree); };
  switch (node.kind) {
    case Kind::kChar:
    case Kind::kSet: return false;
    case Kind::kChoice: return std::ranges::any_of(node.children, child);
    case Kind::kRepeat: return node.low == 0 || child(node.children.front());
    case Kind::kSequence:
    case Kind::kAtomic: return std::ranges::all_of(node.children, child);
    case Kind::kEmpty:
    case Kind::kAhead:
    case Kind::kPlace: break;
  }
  return true;
}

using Bytes = std::bitset<256>;

Bytes first_bytes_of_char(char32_t code) {
  std::string text;
  append_utf8(text, code);
  Bytes first;
  first.set(static_cast<unsigned char>(text[0]));
  // Bytes that are no character look like U+FFFD.
  if (code == 0xFFFD) {
    for (std::size_t byte = 0x80; byte < first.size(); ++byte) first.set(byte);
  }
  return first;
}

// The bytes that what `node` takes may begin with; what takes nothing adds none.
Bytes first_bytes(const Node& node) {
  Bytes first;
  switch (node.kind) {
    case Kind::kChar: return first_bytes_of_char(node.code);
    case Kind::kSet:
      for (char32_t code = 0; code < 128; ++code) first[code] = node.set.contains(code);
      for (std::size_t byte = 0x80; byte < first.size(); ++byte) first[byte] = node.set.may_contain_others();
      return first;
    case Kind::kSequence:
      for (const Tree& child : node.children) {
        first |= first_bytes(*child);
        if (!can_be_empty(*child)) break;
      }
      return first;
    case Kind::kChoice:
    case Kind::kRepeat:
    case Kind::kAtomic:
      for (const Tree& child : node.children) first |= first_bytes(*child);
      return first;
    case Kind::kEmpty:
    case Kind::kAhead:
    case Kind::kPlace: break;
  }
  return first;
}

class Emitter {
 public:
  Result<Regex::Program> emit_all(const Node& tree) {
    if (can_be_empty(tree)) return unsupported("a pattern that may match nothing isn't supported");
    program_.first = first_bytes(tree);
    NMC_RETURN_IF_ERROR(emit(tree));
    add({.op = Regex::Op::kAccept});
    return std::move(program_);
  }

 private:
  using Op = Regex::Op;

  std::uint32_t here() const { return static_cast<std::uint32_t>(program_.instructions.size()); }
  std::uint32_t add(Regex::Instruction instruction) {
    program_.instructions.push_back(instruction);
    return here() - 1;
  }
  void aim(std::uint32_t instruction) { program_.instructions[instruction].target = here(); }
  // However often a node is emitted, its set is there once.
  std::uint32_t set_of(const Node& node) {
    const auto [it, is_new] = set_of_node_.emplace(&node, static_cast<std::uint32_t>(program_.sets.size()));
    if (!is_new) return it->second;
    CharSet set = node.set;
    if (node.kind == Kind::kChar) {
      set.add(node.code, node.code);
      set.finish(false, false);
    }
    program_.sets.push_back(std::move(set));
    return it->second;
  }
  std::uint32_t first_of(const Node& node) {
    const auto [it, is_new] = first_of_node_.emplace(&node, static_cast<std::uint32_t>(program_.firsts.size()));
    if (is_new) program_.firsts.push_back(first_bytes(node));
    return it->second;
  }

  Result<void> emit(const Node& node) {
    if (here() > kProgramMax) return unsupported("a pattern this long isn't supported");
    switch (node.kind) {
      case Kind::kEmpty: break;
      case Kind::kChar: add({.op = Op::kChar, .code = node.code}); break;
      case Kind::kSet: add({.op = Op::kSet, .set = set_of(node)}); break;
      case Kind::kPlace: add({.op = node.place}); break;
      case Kind::kSequence:
        for (const Tree& child : node.children) NMC_RETURN_IF_ERROR(emit(*child));
        break;
      case Kind::kChoice: return emit_choice(node);
      case Kind::kRepeat: return emit_repeat(node);
      case Kind::kAhead: return emit_apart(Op::kAhead, node.low, *node.children.front());
      case Kind::kAtomic: return emit_apart(Op::kAtomic, 1, *node.children.front());
    }
    return {};
  }

  // What runs on its own and doesn't give back.
  Result<void> emit_apart(Op op, std::uint32_t must_match, const Node& inside) {
    const std::uint32_t start = add({.op = op, .low = must_match});
    NMC_RETURN_IF_ERROR(emit(inside));
    add({.op = Op::kAccept});
    aim(start);
    return {};
  }

  Result<void> emit_choice(const Node& node) {
    std::vector<std::uint32_t> jumps;
    for (std::size_t i = 0; i < node.children.size(); ++i) {
      const Node& branch = *node.children[i];
      if (i + 1 == node.children.size()) {
        NMC_RETURN_IF_ERROR(emit(branch));
        break;
      }
      std::uint32_t split;
      if (can_be_empty(branch)) {
        split = add({.op = Op::kSplit});
      } else {
        split = add({.op = Op::kTry, .set = first_of(branch)});
      }
      NMC_RETURN_IF_ERROR(emit(branch));
      jumps.push_back(add({.op = Op::kJump}));
      aim(split);
    }
    for (const std::uint32_t jump : jumps) aim(jump);
    return {};
  }

  Result<void> emit_repeat(const Node& node) {
    const Node& body = *node.children.front();
    const bool is_single = body.kind == Kind::kChar || body.kind == Kind::kSet;
    if (is_single && node.greed != Greed::kLazy) {
      const Op op = node.greed == Greed::kGreedy ? Op::kRun : Op::kAtomicRun;
      add({.op = op, .set = set_of(body), .low = node.low, .high = node.high});
      return {};
    }
    if (node.greed != Greed::kPossessive) return emit_copies(node, body);
    const std::uint32_t start = add({.op = Op::kAtomic, .low = 1});
    NMC_RETURN_IF_ERROR(emit_copies(node, body));
    add({.op = Op::kAccept});
    aim(start);
    return {};
  }

  Result<void> emit_copies(const Node& node, const Node& body) {
    const Op split_op = node.greed == Greed::kLazy ? Op::kLazySplit : Op::kSplit;
    // Each copy is an instruction at least, so that the program's limit bounds the copies too.
    if (node.high > 1 && can_be_empty(body)) return unsupported("repeating what may match nothing isn't supported");
    for (std::uint32_t i = 0; i < node.low; ++i) NMC_RETURN_IF_ERROR(emit(body));
    if (node.high == Regex::kUnbounded) {
      const std::uint32_t split = add({.op = split_op});
      NMC_RETURN_IF_ERROR(emit(body));
      add({.op = Op::kJump, .target = split});
      aim(split);
      return {};
    }
    std::vector<std::uint32_t> splits;
    for (std::uint32_t i = node.low; i < node.high; ++i) {
      splits.push_back(add({.op = split_op}));
      NMC_RETURN_IF_ERROR(emit(body));
    }
    for (const std::uint32_t split : splits) aim(split);
    return {};
  }

  Regex::Program program_;
  std::unordered_map<const Node*, std::uint32_t> set_of_node_;
  std::unordered_map<const Node*, std::uint32_t> first_of_node_;
};

}  // namespace

Result<Regex::Program> compile_regex(std::string_view pattern) {
  NMC_ASSIGN_OR_RETURN(const Tree tree, Parser(pattern).parse());
  return Emitter().emit_all(*tree);
}

}  // namespace nmc::model
