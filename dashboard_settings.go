//go:build cgo

package main

import (
	"net/http"
	"net/url"
	"time"
)

// settingsPage shows what an owner can change of their store, and their password.
type settingsPage struct {
	frame
	Settings filled // the form about the store
	Expiries []expiryChoice
}

// expiryChoice is how long an order may wait for its payment. Days, Hours or Minutes is its text: the first that is not 0.
type expiryChoice struct {
	Value   string // as the form posts it
	Days    int64
	Hours   int64
	Minutes int64
}

func newSettingsPage(r *http.Request, st StoreProfile) settingsPage {
	page := settingsPage{frame: newFrame(r, st, "account")}
	page.Settings.Values = url.Values{
		"name":    {st.Name},
		"contact": {st.Contact},
		"expiry":  {st.Expiry.String()},
		"test":    {ticked[st.TestMode]},
	}

	known := false
	for _, hours := range []int64{1, 3, 6, 12, 24, 48, 72, 168} {
		lasts := time.Duration(hours) * time.Hour
		choice := expiryChoice{Value: lasts.String(), Hours: hours}
		if hours >= 48 {
			choice.Days = hours / 24
		}
		page.Expiries = append(page.Expiries, choice)
		known = known || lasts == st.Expiry
	}
	if !known { // It was set by a command.
		choice := expiryChoice{Value: st.Expiry.String(), Minutes: int64(st.Expiry / time.Minute)}
		if st.Expiry%time.Hour == 0 {
			choice.Hours = int64(st.Expiry / time.Hour)
		}
		page.Expiries = append(page.Expiries, choice)
	}
	return page
}

// saveSettings stores what the form about the store holds.
func (s *server) saveSettings(w http.ResponseWriter, r *http.Request, st StoreProfile) error {
	name, contact := text(r.PostForm, "name"), text(r.PostForm, "contact")
	faults := checkText("name", name, required, 200)
	if contact != "" && !isContact(contact) {
		faults["contact"] = Fault{Code: FaultContact}
	}
	expiry, err := time.ParseDuration(r.PostForm.Get("expiry"))
	if err != nil || expiry < leastExpiry || expiry > mostExpiry {
		expiry = st.Expiry // The form offers no other.
	}

	if len(faults) > 0 {
		page := newSettingsPage(r, st)
		page.Settings = filled{r.PostForm, faults}
		return render(w, r, http.StatusUnprocessableEntity, "dash-account.html", page)
	}

	_, err = s.db.SetStore(r.Context(), st.ID, func(st *StoreProfile) error {
		st.Name, st.Contact, st.Expiry = name, contact, expiry
		st.TestMode = r.PostForm.Has("test")
		return nil
	})
	if err != nil {
		return err
	}
	return done(w, r, "/dashboard/account", "saved")
}
