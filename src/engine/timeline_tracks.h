// Which track of which group a span is drawn on: see timeline.h.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/stage_span.h"

namespace nmc::engine {

// Not thread-safe.
class TimelineTracks {
 public:
  struct Place {
    std::size_t group;  // from 1
    std::size_t track;  // of that group, from 1
    bool new_group, new_track;
  };

  // Spans of one request and process come in any order as long as the last is the one marked so.
  Place place(const StageSpan& span);

 private:
  // Requests that lost their last span hold their tracks for good; beyond so many the one held longest is taken away.
  static constexpr std::size_t kTracksMax = 4096;

  struct Track {
    std::string request_id;  // "": free
    Nanos busy_until{0};     // end of the latest span
  };
  struct Group {
    std::size_t number;
    std::vector<Track> tracks;
  };
  static std::size_t track_for(Group& group, const StageSpan& span, bool* is_new);

  std::map<std::pair<std::string, std::int64_t>, Group> groups_;  // by process name and pid
};

}  // namespace nmc::engine
