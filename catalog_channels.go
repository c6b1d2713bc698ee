package main

// This file has the channels of gateways: the ways to pay that a method can be limited to, with their names and bounds.

import (
	"slices"
	"strconv"
	"strings"
)

// channelTable has a row per channel. After the code it has three columns for Midtrans and three for Xendit: the name
// there, and the least and the largest amount in rupiah that the gateway publishes. A dash is none.
const channelTable = `
	va_bca      bca_va       10000  20000000000  BCA_VIRTUAL_ACCOUNT       10000  50000000
	va_bni      bni_va       1      -            BNI_VIRTUAL_ACCOUNT       1      50000000
	va_bri      bri_va       1      20000000000  BRI_VIRTUAL_ACCOUNT       1      -
	va_mandiri  echannel     1      -            MANDIRI_VIRTUAL_ACCOUNT   1      -
	va_permata  permata_va   1      9999999999   PERMATA_VIRTUAL_ACCOUNT   1      9999999999
	va_cimb     cimb_va      1      250000000    CIMB_VIRTUAL_ACCOUNT      1      50000000
	va_bsi      bsi_va       1000   -            BSI_VIRTUAL_ACCOUNT       1      -
	va_danamon  danamon_va   1      -            -                         -      -
	va_seabank  seabank_va   10000  100000000    -                         -      -
	va_saqu     saqu_va      -      -            -                         -      -
	va_bjb      -            -      -            BJB_VIRTUAL_ACCOUNT       1      2000000000
	va_bnc      -            -      -            BNC_VIRTUAL_ACCOUNT       1      -
	va_muamalat -            -      -            MUAMALAT_VIRTUAL_ACCOUNT  1      -
	qris        other_qris   1      10000000     QRIS                      1      10000000
	gopay       gopay        1      20000000     GOPAY                     1      50000000
	shopeepay   shopeepay    1      20000000     SHOPEEPAY                 1      20000000
	dana        dana         1      20000000     DANA                      100    20000000
	ovo         ovo          1      99999999     OVO                       100    20000000
	linkaja     -            -      -            LINKAJA                   1      20000000
	astrapay    -            -      -            ASTRAPAY                  -      -
	jenius      -            -      -            JENIUSPAY                 1000   20000000
	card        credit_card  10000  999999999    CARDS                     5000   200000000
	alfamart    alfamart     1      5000000      ALFAMART                  10000  5000000
	indomaret   indomaret    10000  5000000      INDOMARET                 10000  2500000
	akulaku     akulaku      5000   -            AKULAKU                   -      -
	kredivo     kredivo      1      -            KREDIVO                   1000   30000000
	indodana    -            -      -            INDODANA                  10000  25000000
`

// notifiedOnly are the channels at Midtrans whose payments can only be checked by an identifier that a notification
// brings.
const notifiedOnly = "dana va_bsi va_danamon va_seabank va_saqu"

// Channel is a way to pay at a gateway.
type Channel struct {
	Code         string
	Name         string // at the gateway
	Least, Most  int64  // the amounts that it takes; 0 = not published
	NotifiedOnly bool
}

// Channels lists the channels of a gateway.
func (p Provider) Channels() (channels []Channel) {
	from := map[Provider]int{Midtrans: 1, Xendit: 4}[p]
	for row := range slices.Chunk(strings.Fields(channelTable), 7) {
		if from == 0 || row[from] == "-" {
			continue
		}
		c := Channel{Code: row[0], Name: row[from]}
		c.Least, _ = strconv.ParseInt(row[from+1], 10, 64) // 0 for a dash
		c.Most, _ = strconv.ParseInt(row[from+2], 10, 64)
		c.NotifiedOnly = p == Midtrans && slices.Contains(strings.Fields(notifiedOnly), c.Code)
		channels = append(channels, c)
	}
	return channels
}

// isChannel reports whether a gateway has a channel with a code.
func (p Provider) isChannel(code string) bool {
	return slices.ContainsFunc(p.Channels(), func(c Channel) bool { return c.Code == code })
}

// limit returns the codes of the channels that a method is limited to; none = all of its gateway. Without channels, its
// own code may be one.
func (m Method) limit() []string {
	if len(m.Channels) == 0 && m.Provider.isChannel(m.Code) {
		return []string{m.Code}
	}
	return m.Channels
}

// offered lists the channels that a method's page can offer in a store. isAll says that these are all of the gateway's.
// In a store that no gateway can reach, Midtrans's page leaves out the channels of notifiedOnly.
func (m Method) offered(st Store) (channels []Channel, isAll bool) {
	limit := m.limit()
	isAll = len(limit) == 0
	for _, c := range m.Provider.Channels() {
		if c.NotifiedOnly && unreachable(st.URL) != "" {
			isAll = false
			continue
		}
		if len(limit) == 0 || slices.Contains(limit, c.Code) {
			channels = append(channels, c)
		}
	}
	return channels, isAll
}

// channelNames returns the gateway's names for the channels that a method's page is limited to; none = all. A method
// that has lost all its channels since it was chosen offers all that are left.
func (m Method) channelNames(st Store) (names []string) {
	channels, isAll := m.offered(st)
	if len(channels) == 0 {
		channels, isAll = Method{Provider: m.Provider}.offered(st)
	}
	if isAll {
		return nil
	}
	for _, c := range channels {
		names = append(names, c.Name)
	}
	return names
}

// addsFeeToQRIS reports whether buyers who pay by QRIS would pay a method's fee, which the central bank forbids (PBI
// 23/6/PBI/2021, article 52).
func (m Method) addsFeeToQRIS(st Store) bool {
	channels, _ := m.offered(st)
	hasQRIS := slices.ContainsFunc(channels, func(c Channel) bool { return c.Code == "qris" })
	return m.Fee > 0 && (m.Kind == QRIS || hasQRIS)
}

// leastOfAll returns the least amount that all channels of a gateway take.
func (p Provider) leastOfAll() int64 {
	least := int64(1000)
	for _, c := range p.Channels() {
		least = max(least, c.Least)
	}
	return least
}
