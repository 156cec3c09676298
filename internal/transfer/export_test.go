package transfer

// ListSQL is the query of a list.
var ListSQL = listSQL
