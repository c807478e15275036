# A text file as a C++ raw string literal.
# cmake -DINPUT=docs/x.json -DOUTPUT=x.inc -P WriteText.cmake
file(READ ${INPUT} text)
if(text MATCHES "\\)nmc_text\"")
  message(FATAL_ERROR "${INPUT}: holds )nmc_text\", which ends the literal it is put in")
endif()
file(WRITE ${OUTPUT} "R\"nmc_text(${text})nmc_text\"\n")
