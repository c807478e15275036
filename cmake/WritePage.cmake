# index.html with its style and its scripts put in place, as a C++ raw string literal.
# cmake -DFOLDER=src/http/page -DSCRIPTS="a.js;b.js" -DOUTPUT=nmc_page.inc -P WritePage.cmake
file(READ ${FOLDER}/index.html document)
file(READ ${FOLDER}/page.css style)
set(script "")
foreach(path IN LISTS SCRIPTS)
  file(READ ${path} text)
  string(APPEND script "\n${text}")
endforeach()

string(REPLACE "@page.css@" "\n${style}" document "${document}")
string(REPLACE "@page.js@" "${script}" document "${document}")
if(document MATCHES "\\)nmc_page\"")
  message(FATAL_ERROR "${FOLDER}: holds )nmc_page\", which ends the literal it is put in")
endif()
file(WRITE ${OUTPUT} "R\"nmc_page(${document})nmc_page\"\n")
