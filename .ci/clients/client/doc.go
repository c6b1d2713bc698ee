// Package client is generated from openapi.json by ../run.
package client

import _ "github.com/oapi-codegen/runtime" // what is generated needs it
